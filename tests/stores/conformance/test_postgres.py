"""The PostgreSQL store in both colours, on a real server, passes the suite of every store."""

import asyncio

import pytest

from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.testing import AsyncStoreConformance, StoreConformance
from oncekey.testing.conformance.base import OnRunner
from tests.servers.postgres_fixtures import (
    _shared_database,
    empty_postgres_url,
    postgres,
)
from tests.stores.conformance.postgres_time import MovedTime
from tests.stores.conformance.real_time import OnRealTime

__all__ = ["_shared_database", "empty_postgres_url", "postgres"]


class OnMovedTime:
    """Time stands still, so every rule is met at its very microsecond."""

    @pytest.fixture(scope="class")
    def _moved_time(self, _shared_database):
        clock = MovedTime(_shared_database)
        yield clock
        clock.close()

    @pytest.fixture
    def clock(self, _moved_time, empty_postgres_url):
        _moved_time.start_again()
        return _moved_time


@pytest.mark.row("J4", "P11")
class TestPostgres(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, clock):
        return PostgresStore(clock.url)


@pytest.mark.row("J4")
class TestAsyncPostgres(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, clock):
        return AsyncPostgresStore(clock.url)


class TestPostgresOnItsOwnTime(OnRealTime):
    @pytest.fixture
    def store(self, empty_postgres_url):
        store = PostgresStore(empty_postgres_url)
        yield store
        store.close()


class TestAsyncPostgresOnItsOwnTime(OnRealTime):
    @pytest.fixture
    def store(self, empty_postgres_url):
        with asyncio.Runner() as runner:
            store = OnRunner(AsyncPostgresStore(empty_postgres_url), runner)
            yield store
            store.close()
