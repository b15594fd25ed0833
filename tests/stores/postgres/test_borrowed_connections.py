"""A PostgreSQL store on a connection of the caller, and on sessions that others change."""

import asyncio

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from oncekey import ConfigurationError, Once, StoreError
from oncekey.core.requests import Busy, Granted, Replay
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.adapters import Threaded
from oncekey.stores.postgres import schema
from oncekey.testing.conformance.base import DONE, Blocking, Desk, OnRunner
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, postgres, postgres_url

__all__ = ["beside", "postgres", "postgres_url"]

MINUTE = 60_000_000


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


class Caller:
    """A caller with one connection of its own, and a store on it, both used by blocking verbs."""

    def __init__(self, run, connection, store):
        self.run, self.connection, self.store = run, connection, store

    def execute(self, statement):
        return self.run(self.connection.execute, statement)

    def calls(self, **how):
        async def read():
            return [call async for call in self.connection.notifies(**how)]

        if isinstance(self.connection, psycopg.Connection):
            return list(self.connection.notifies(**how))
        return self.run(read)


@pytest.fixture(params=["blocking", "coroutines"])
def caller(request, postgres_url):
    """Makes callers, with a connection opened as asked."""
    with asyncio.Runner() as runner:
        made = []

        def run(verb, *arguments):
            async def call():
                return await verb(*arguments)

            return runner.run(call())

        def make(**options):
            if request.param == "blocking":
                connection = psycopg.connect(postgres_url, **options)
                store = Blocking(PostgresStore(connection))
                one = Caller(lambda verb, *arguments: verb(*arguments), connection, store)
            else:

                async def connect():
                    return await psycopg.AsyncConnection.connect(postgres_url, **options)

                connection = run(connect)
                store = OnRunner(AsyncPostgresStore(connection), runner)
                one = Caller(run, connection, store)
            made.append(one)
            return one

        yield make
        for one in made:
            one.run(one.connection.close)


@pytest.mark.parametrize("autocommit", [True, False])
def test_the_verbs_commit_on_the_connection_of_the_caller(caller, postgres_url, beside, autocommit):
    me = caller(autocommit=autocommit)
    desk = desk_of(me.store)
    owner = desk.grant("a")
    other = desk_of(PostgresStore(postgres_url))
    assert type(other.claim("b")) is Busy  # it is committed
    assert desk.settle(owner) is DONE
    assert type(other.claim("b")) is Replay
    assert me.connection.info.transaction_status == TransactionStatus.IDLE
    me.store.close()
    assert not me.connection.closed
    assert type(desk.claim("c")) is Replay
    other.store.close()


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_connection_inside_a_transaction_is_refused(caller, autocommit):
    me = caller(autocommit=autocommit)
    desk = desk_of(me.store)
    me.execute("BEGIN" if autocommit else "SELECT 1")
    with pytest.raises(ConfigurationError, match="inside a transaction"):
        desk.claim("a")
    me.execute("ROLLBACK")
    desk.grant("a")


def test_a_connection_inside_a_pipeline_is_refused(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        store = PostgresStore(connection)
        with connection.pipeline(), pytest.raises(ConfigurationError, match="or a pipeline"):
            desk_of(store).claim("a")
        desk_of(store).grant("a")


def test_a_connection_that_was_closed_is_no_mystery(caller):
    me = caller()
    desk_of(me.store).grant("a")
    me.run(me.connection.close)
    with pytest.raises(StoreError, match="the connection is closed") as caught:
        desk_of(me.store).claim("b")
    assert (caught.value.happened, caught.value.unreachable) == (False, True)


def test_a_connection_that_is_lost_during_a_verb_is_unknown(caller, beside, postgres_url):
    me = caller()
    desk_of(me.store).grant("a")
    ending = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = "
    beside(postgres_url).execute(ending + "current_database() AND pid <> pg_backend_pid()")
    with pytest.raises(StoreError, match="was lost") as caught:
        desk_of(me.store).claim("b")
    assert caught.value.happened is None


def test_many_take_turns_on_one_connection(caller):
    me = caller()
    desk = desk_of(me.store)
    desk_of(me.store, "warm").grant("a")
    answers = me.store.claim_together([desk.ask(f"nonce-{number}") for number in range(8)])
    assert sorted(type(answer).__name__ for answer in answers) == ["Busy"] * 7 + ["Granted"]


def test_what_the_caller_listens_to_is_not_swallowed(caller, beside, postgres_url):
    me = caller(autocommit=True)
    desk_of(me.store).grant("a")
    me.execute("LISTEN news")
    beside(postgres_url).execute("NOTIFY news, 'it rains'")
    assert type(desk_of(me.store).claim("b")) is Busy  # it came with this answer, or before
    assert [call.payload for call in me.calls(timeout=PATIENCE, stop_after=1)] == ["it rains"]


def test_a_connection_that_wants_no_news_gets_none(caller, beside, postgres_url):
    me = caller(autocommit=True)
    me.execute("LISTEN news")
    me.connection.pgconn.notify_handler = None
    beside(postgres_url).execute("NOTIFY news, 'it rains'")
    desk_of(me.store).grant("a")
    assert me.calls(timeout=0.05) == []


def test_a_migration_that_fails_leaves_no_transaction_behind(caller, monkeypatch):
    ours = schema.migrations()
    monkeypatch.setattr(schema, "migrations", lambda: (*ours, b"SELECT 1 / 0"))
    me = caller()
    with pytest.raises(StoreError, match="division by zero"):
        desk_of(me.store).claim("a")
    assert me.connection.info.transaction_status == TransactionStatus.IDLE


def test_two_stores_share_a_session(caller):
    """What one has prepared, the other finds there."""
    me = caller()
    desk_of(me.store).grant("a")
    twin = AsyncPostgresStore if isinstance(me.store, OnRunner) else PostgresStore
    second = twin(me.connection)
    answer = me.run(second.claim, desk_of(None).ask("b"))
    assert type(answer) is Busy


def test_statements_that_somebody_discarded_are_prepared_again(caller):
    me = caller(autocommit=True)
    desk = desk_of(me.store)
    desk.grant("a")
    me.execute("DISCARD ALL")
    assert type(desk.claim("b")) is Busy


@pytest.mark.parametrize("encoding", ["latin1", "sql_ascii"])
def test_a_connection_that_does_not_speak_utf8_is_refused(caller, encoding):
    me = caller(client_encoding=encoding)
    with pytest.raises(ConfigurationError, match="client_encoding='utf8'"):
        desk_of(me.store).claim("a")


def test_seen_from_the_other_colour_it_is_used_on_threads(postgres_url):
    with psycopg.connect(postgres_url) as connection:
        store = PostgresStore(connection)
        assert isinstance(store.as_async(), Threaded)
        once = Once(store, cache=False)

        async def work():
            return "done"

        assert asyncio.run(once.run_async("k", work)) == "done"
        assert once.run("k", lambda: "again") == "done"
        once.close()


async def test_the_wrong_colour_is_refused(postgres_url):
    refused = pytest.raises(ConfigurationError, match="give it to PostgresStore")
    with psycopg.connect(postgres_url) as connection, refused:
        await AsyncPostgresStore(connection).purge(0, 1)
    connection = await psycopg.AsyncConnection.connect(postgres_url)
    with pytest.raises(ConfigurationError, match="give it to AsyncPostgresStore"):
        PostgresStore(connection)
    await connection.close()
    with pytest.raises(ConfigurationError, match="give it to AsyncPostgresStore"):
        PostgresStore(AsyncConnectionPool(postgres_url, open=False))
    with pytest.raises(ConfigurationError, match="give it to PostgresStore"):
        await AsyncPostgresStore(ConnectionPool(postgres_url, open=False)).purge(0, 1)


def test_a_pool_that_gives_nothing_in_time_did_not_happen(postgres_url):
    with ConnectionPool(postgres_url, min_size=1, max_size=1, timeout=0.05, open=True) as pool:
        pool.wait(PATIENCE)
        store = PostgresStore(pool)
        assert type(desk_of(store).claim("a")) is Granted
        with pool.connection(), pytest.raises(StoreError, match="cannot be reached") as caught:
            desk_of(store).claim("b")
        assert caught.value.happened is False
