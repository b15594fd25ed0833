"""Fixtures that start Redis. A test module imports the ones that it asks for."""

import pytest

from tests.servers.redis import RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """One server for the whole run."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.stop()


@pytest.fixture
def empty_redis(redis_server):
    """The server of the run, without data and with its usual settings."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server


@pytest.fixture
def another_redis(tmp_path):
    """Starts servers that belong to one test alone, with options of redis.conf."""
    started = []

    def start(**options):
        started.append(RedisServer(tmp_path, **options).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()
