"""Fixtures that start Redis, Valkey and a Redis Cluster. A module imports those it asks for."""

import pytest

from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.shared import started_once
from tests.servers.valkey import ValkeyServer


def _server_of_run(kind, end_of_run, tmp_path_factory):
    """Start what a class stands for, or return the one that runs."""

    def start():
        server = kind(tmp_path_factory.mktemp(kind.__name__)).start()
        end_of_run.callback(server.stop)
        return server

    return started_once(kind, start)


@pytest.fixture(scope="session")
def redis_server(end_of_run, tmp_path_factory):
    """One Redis for the whole run."""
    return _server_of_run(RedisServer, end_of_run, tmp_path_factory)


@pytest.fixture(scope="session")
def valkey_server(end_of_run, tmp_path_factory):
    """One Valkey for the whole run."""
    return _server_of_run(ValkeyServer, end_of_run, tmp_path_factory)


@pytest.fixture(scope="session")
def redis_cluster(end_of_run, tmp_path_factory):
    """One cluster of three nodes for the whole run."""
    return _server_of_run(RedisCluster, end_of_run, tmp_path_factory)


@pytest.fixture
def empty_redis(redis_server):
    """The Redis of the run, without data."""
    return _emptied(redis_server)


@pytest.fixture
def empty_valkey(valkey_server):
    """The Valkey of the run, without data."""
    return _emptied(valkey_server)


@pytest.fixture
def empty_cluster(redis_cluster):
    """The cluster of the run, without data."""
    for node in redis_cluster.nodes:
        _emptied(node)
    return redis_cluster


def _emptied(server):
    with server.client() as client:
        client.flushall()
    return server


@pytest.fixture
def another_redis(tmp_path):
    """Start servers that belong to one test alone, with options of redis.conf."""
    started = []

    def start(**options):
        started.append(RedisServer(tmp_path, **options).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()
