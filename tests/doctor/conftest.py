"""Servers as they should be: with an append-only file, and with every commit on the disk."""

import signal

import psycopg
import pytest

from tests.fixtures import until
from tests.servers.postgres import serving
from tests.servers.redis import RedisServer
from tests.unit.doctor.conftest import by_check

__all__ = ["by_check", "until"]

SAFE = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}


@pytest.fixture(scope="session")
def safe_server(tmp_path_factory):
    server = RedisServer(tmp_path_factory.mktemp("safe"), **SAFE).start()
    yield server
    server.stop()


@pytest.fixture
def safe_redis(safe_server):
    """A safe server; a test may change its settings, which are as before afterwards."""
    with safe_server.client() as client:
        client.flushall()
        yield safe_server
        for name, value in {**SAFE, "maxmemory": 0, "min-replicas-to-write": 0}.items():
            client.config_set(name, value)


@pytest.fixture(scope="session")
def safe_postgres():
    """A server with the settings that PostgreSQL comes with."""
    with serving(durable=True) as server:
        yield server
        server.stop(signal.SIGQUIT)  # nobody needs what it would write to the disk before it ends


@pytest.fixture
def safe_database(safe_postgres):
    """The only database of the server: a new one would be a thousand files to write."""
    url = safe_postgres.url("postgres")
    yield url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER DATABASE postgres RESET ALL")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


@pytest.fixture
def setting(safe_database):
    """Changes settings of the database, for connections from then on."""

    def change(**settings):
        with psycopg.connect(safe_database, autocommit=True) as connection:
            for one, value in settings.items():
                connection.execute(f"ALTER DATABASE postgres SET {one} = {value}")
        return safe_database

    return change
