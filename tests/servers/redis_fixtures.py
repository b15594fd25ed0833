"""Fixtures that start Redis, Valkey and a Redis Cluster. A module imports those that it asks for.

A session fixture that several modules import is set up for each of them. These keep what they
started in the configuration, so that a worker starts it once.
"""

import pytest

from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.valkey import ValkeyServer

_STARTED = pytest.StashKey[dict[type, RedisServer | RedisCluster]]()


def _started_once(kind, pytestconfig, tmp_path_factory):
    """Start what a class stands for, or return the one that runs."""
    started = pytestconfig.stash.setdefault(_STARTED, {})
    if kind not in started:
        started[kind] = kind(tmp_path_factory.mktemp(kind.__name__)).start()
        pytestconfig.add_cleanup(started[kind].stop)
    return started[kind]


@pytest.fixture(scope="session")
def redis_server(pytestconfig, tmp_path_factory):
    """One Redis for the whole run."""
    return _started_once(RedisServer, pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def valkey_server(pytestconfig, tmp_path_factory):
    """One Valkey for the whole run."""
    return _started_once(ValkeyServer, pytestconfig, tmp_path_factory)


@pytest.fixture(scope="session")
def redis_cluster(pytestconfig, tmp_path_factory):
    """One cluster of three nodes for the whole run."""
    return _started_once(RedisCluster, pytestconfig, tmp_path_factory)


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
