"""The PostgreSQL store on engines of SQLAlchemy passes the suite that every store passes."""

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.testing import AsyncStoreConformance, StoreConformance
from tests.servers.postgres_fixtures import (
    _shared_database,
    empty_postgres_url,
    postgres,
)
from tests.stores.conformance.test_postgres import OnMovedTime

__all__ = ["_shared_database", "empty_postgres_url", "postgres"]


def through_sqlalchemy(url):
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


class TestPostgresOnAnEngine(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, clock):
        engine = create_engine(through_sqlalchemy(clock.url))
        yield PostgresStore(engine)
        engine.dispose()


class TestAsyncPostgresOnAnEngine(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return AsyncPostgresStore(
            create_async_engine(through_sqlalchemy(clock.url), poolclass=NullPool)
        )
