"""The fixture `store_url`: each store in turn, empty, and named as `opened` understands it."""

import pytest

from tests.heavy import HEAVY
from tests.processes.store_urls import CLUSTER
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_fixtures import (
    empty_cluster,
    empty_redis,
    empty_valkey,
    redis_cluster,
    redis_server,
    valkey_server,
)

__all__ = [
    "_shared_database",
    "empty_cluster",
    "empty_postgres_url",
    "empty_redis",
    "empty_valkey",
    "postgres",
    "redis_cluster",
    "redis_server",
    "store_url",
    "valkey_server",
]

STORES = ("sqlite", "redis", "cluster", "postgres", *(["valkey"] if HEAVY else []))


@pytest.fixture(params=STORES)
def store_url(request, tmp_path):
    """An empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    if request.param == "memory":
        return "memory://"
    if request.param == "postgres":
        return request.getfixturevalue("empty_postgres_url")
    server = request.getfixturevalue(f"empty_{request.param}")
    return f"{CLUSTER}{server.nodes[0].port}" if request.param == "cluster" else server.url
