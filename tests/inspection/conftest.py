"""Stores of every kind to look at."""

import pytest

from oncekey.stores import MemoryStore, PostgresStore, RedisStore, SQLiteStore
from oncekey.stores.base import VERBS
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server

__all__ = [
    "_shared_database",
    "another_redis",
    "empty_postgres_url",
    "empty_redis",
    "postgres",
    "redis_server",
]

KINDS = ["memory", "sqlite", "redis", "postgres", "unknown"]


class Unknown:
    """A store that somebody else has written: the verbs, and nothing else."""

    def __init__(self, kept):
        for verb in (*VERBS, "close"):
            setattr(self, verb, getattr(kept, verb))


@pytest.fixture(params=KINDS)
def store(request, tmp_path):
    """A store of each kind, without records."""
    kind = request.param
    if kind == "redis":
        store = RedisStore.from_url(request.getfixturevalue("empty_redis").url)
    elif kind == "postgres":
        store = PostgresStore(request.getfixturevalue("empty_postgres_url"))
    elif kind == "sqlite":
        store = SQLiteStore(tmp_path / "records.db")
    else:
        store = MemoryStore() if kind == "memory" else Unknown(MemoryStore())
    yield store
    store.close()


@pytest.fixture
def unknown_store():
    """A store that somebody else has written, without records."""
    return Unknown(MemoryStore())
