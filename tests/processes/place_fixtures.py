"""The fixture `place`: each store in turn, empty, and named as `opened` understands it."""

import pytest

from tests.processes.places import CLUSTER
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.servers.valkey import ValkeyServer

__all__ = [
    "_shared_database",
    "empty_cluster",
    "empty_postgres_url",
    "empty_redis",
    "empty_valkey",
    "place",
    "postgres",
    "redis_cluster",
    "redis_server",
    "valkey_server",
]

PLACES = ("sqlite", "redis", "valkey", "cluster", "postgres")


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory):
    """One server for the whole run."""
    server = ValkeyServer(tmp_path_factory.mktemp("valkey")).start()
    yield server
    server.stop()


@pytest.fixture
def empty_valkey(valkey_server):
    with valkey_server.client() as client:
        client.flushall()
    return valkey_server


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory):
    """One cluster of three nodes for the whole run."""
    cluster = RedisCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.fixture
def empty_cluster(redis_cluster):
    for node in redis_cluster.nodes:
        with node.client() as client:
            client.flushall()
    return redis_cluster


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    """An empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    if request.param == "memory":
        return "memory://"
    if request.param == "postgres":
        return request.getfixturevalue("empty_postgres_url")
    server = request.getfixturevalue(f"empty_{request.param}")
    return f"{CLUSTER}{server.nodes[0].port}" if request.param == "cluster" else server.url
