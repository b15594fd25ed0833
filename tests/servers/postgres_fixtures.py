"""Fixtures with a real PostgreSQL: one for the session, and one that a test may break."""

import asyncio
from contextlib import ExitStack
from functools import partialmethod

import psycopg
import pytest

from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.testing.conformance.base import OnRunner
from tests.servers.postgres import PostgresServer, serving
from tests.servers.shared import started_once

EMPTIED = (
    """
        SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()
    """,
    "DROP SCHEMA public CASCADE",
    "CREATE SCHEMA public",
    "GRANT USAGE ON SCHEMA public TO public",
)
"""A tenth of the time that a new database takes."""
SIZE = "SELECT pg_relation_size(to_regclass('oncekey_records'))"
FEW = 64 * 1024


class OnRunnerToo(OnRunner):
    """An async store with everything that this one can do more."""

    watch = partialmethod(OnRunner._run, "watch")


@pytest.fixture(scope="session")
def postgres(end_of_run):
    """A server that all tests share; none may stop it."""
    return started_once(PostgresServer, lambda: end_of_run.enter_context(serving()))


@pytest.fixture(scope="module")
def breakable_postgres():
    """A server of this module, to be stopped and started again."""
    with serving() as server:
        yield server


@pytest.fixture
def postgres_url(postgres):
    """A database of its own: nothing is in it, and nobody else is connected."""
    url = postgres.only_database()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in EMPTIED:
            connection.execute(statement)
    return url


@pytest.fixture(scope="module")
def _shared_database(postgres):
    return postgres.new_database()


@pytest.fixture
def empty_postgres_url(_shared_database):
    """One database for many tests, with the schema and without records."""
    with psycopg.connect(_shared_database, autocommit=True) as connection:
        (size,) = connection.execute(SIZE).fetchone()
        if size is not None:  # for a few, DELETE is quicker, but it leaves dead rows behind
            connection.execute(f"{'TRUNCATE' if size > FEW else 'DELETE FROM'} oncekey_records")
            connection.execute("DELETE FROM oncekey_audit")
            connection.execute("DELETE FROM oncekey_activity")
    return _shared_database


@pytest.fixture(params=["blocking", "coroutines"])
def colour(request):
    """Opens stores of one colour, each behind the same blocking verbs, and closes them."""
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())

        def opened(*arguments, **options):
            if request.param == "blocking":
                store = PostgresStore(*arguments, **options)
            else:
                store = OnRunnerToo(AsyncPostgresStore(*arguments, **options), runner)
            stack.callback(store.close)
            return store

        yield opened


@pytest.fixture
def beside():
    """Opens connections that do what another process might."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(psycopg.connect(url, autocommit=True))
