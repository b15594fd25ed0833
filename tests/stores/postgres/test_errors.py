"""What goes wrong with PostgreSQL is told apart: it did not happen, or nobody knows."""

import asyncio
import signal
import threading

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from oncekey import ConfigurationError, StoreError
from oncekey.core.requests import Busy, Replay
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import schema
from oncekey.stores.postgres.errors import explain
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import (
    beside,
    breakable_postgres,
    colour,
    postgres,
    postgres_url,
)
from tests.servers.postgres_proxy_fixtures import proxied_url, proxy

__all__ = [
    "beside",
    "breakable_postgres",
    "colour",
    "postgres",
    "postgres_url",
    "proxied_url",
    "proxy",
]

MINUTE = 60_000_000


def desk_of(store, key="order-1", lease=MINUTE):
    return Desk(store, lease=lease, ttl=MINUTE, key=key)


def refused(desk, said, *, unreachable=False):
    with pytest.raises(StoreError, match=said) as caught:
        desk.claim("z")
    assert caught.value.happened is False
    assert caught.value.unreachable is unreachable


# The server goes away and comes back


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_restarted_server_is_found_again_without_an_error(breakable_postgres, colour, how):
    store = colour(breakable_postgres.new_database())
    owner = desk_of(store).grant("a")
    breakable_postgres.stop(how)
    try:
        refused(desk_of(store), "cannot be reached", unreachable=True)
        refused(desk_of(store), "cannot be reached", unreachable=True)
    finally:
        breakable_postgres.start()
    assert desk_of(store).settle(owner) is DONE
    breakable_postgres.stop(how)
    breakable_postgres.start()  # nobody asked meanwhile, so nobody has to hear of it
    assert desk_of(store).forget(owner) is DONE


BACKENDS = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = "


def test_a_backend_killed_during_a_statement_is_unknown_and_asking_again_converges(
    postgres_url, beside, until, unbound
):
    store = PostgresStore(postgres_url, timeout=PATIENCE)
    first = desk_of(store).grant("a", lease=1)
    other, watch = beside(postgres_url), beside(postgres_url)
    other.execute("BEGIN")
    other.execute("SELECT 1 FROM oncekey_records FOR UPDATE")
    caught = []

    def ask():
        try:
            desk_of(store).claim("b")
        except StoreError as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: watch.execute(BACKENDS + "current_database()").fetchall())
    ((pid,),) = watch.execute(BACKENDS + "current_database()").fetchall()
    watch.execute("SELECT pg_terminate_backend(%s)", [pid])
    thread.join()
    assert [error.happened for error in caught] == [None]
    other.execute("ROLLBACK")
    second = desk_of(store).grant("b")
    assert second == desk_of(store).grant("b")
    assert (second.attempt, second.token > first.token) == (2, True)
    store.close()


def test_an_idle_connection_that_was_killed_is_replaced(postgres_url, colour, beside):
    store = colour(postgres_url)
    desk_of(store).grant("a")
    ending = "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity WHERE datname = "
    beside(postgres_url).execute(ending + "current_database() AND pid <> pg_backend_pid()")
    assert type(desk_of(store).claim("b")) is Busy


# The server refuses


def test_a_row_that_is_held_too_long_is_given_up(postgres_url, colour, beside):
    store = colour(postgres_url)
    desk_of(store).grant("a", lease=1)
    other = beside(postgres_url)
    other.execute(
        "DO $$ BEGIN EXECUTE (SELECT format('ALTER FUNCTION %s SET lock_timeout = ''50ms''', "
        "oid::regprocedure) FROM pg_proc WHERE proname = 'oncekey_claim_v1'); END $$"
    )
    other.execute("BEGIN")
    other.execute("SELECT 1 FROM oncekey_records FOR UPDATE")
    refused(desk_of(store), "lock timeout")
    other.execute("ROLLBACK")
    desk_of(store).grant("z")


def test_a_read_only_server_says_so(postgres_url, colour):
    desk_of(colour(postgres_url)).grant("a")
    replica = postgres_url + "?options=-cdefault_transaction_read_only%3Don"
    refused(desk_of(colour(replica), "new"), "name the primary")


def test_a_read_only_server_answers_duplicates(postgres_url, colour):
    desk = desk_of(colour(postgres_url))
    desk.settle(desk.grant("a"))
    replica = postgres_url + "?options=-cdefault_transaction_read_only%3Don"
    assert type(desk_of(colour(replica)).claim("b")) is Replay


def test_a_read_only_server_without_tables_says_so(postgres_url, colour):
    replica = postgres_url + "?options=-cdefault_transaction_read_only%3Don"
    refused(desk_of(colour(replica)), "name the primary")


def test_too_many_connections_did_not_happen(postgres, postgres_url, colour, beside):
    role = postgres_url.replace(f"postgres:{postgres.password}", "narrow:pw")
    beside(postgres_url).execute("CREATE ROLE narrow LOGIN PASSWORD 'pw' CONNECTION LIMIT 0")
    try:
        refused(desk_of(colour(role)), "too many connections", unreachable=True)
    finally:
        beside(postgres_url).execute("DROP ROLE narrow")


def test_nobody_waits_for_ever_for_a_connection(postgres_url, beside, until, unbound):
    store = PostgresStore(postgres_url, size=1, timeout=PATIENCE)
    desk_of(store).grant("a", lease=1)
    other, watch = beside(postgres_url), beside(postgres_url)
    other.execute("BEGIN")
    other.execute("SELECT 1 FROM oncekey_records FOR UPDATE")
    thread = threading.Thread(target=lambda: desk_of(store).claim("b"))
    thread.start()
    until(lambda: watch.execute(BACKENDS + "current_database()").fetchall())
    store.links.here()._room._patience = 0.05
    refused(desk_of(store), "raise size=", unreachable=True)
    other.execute("ROLLBACK")
    thread.join()
    store.close()


@pytest.mark.parametrize(
    "drop",
    [
        "DROP SCHEMA public CASCADE; CREATE SCHEMA public",
        "DROP TABLE oncekey_records, oncekey_schema CASCADE",  # but not all functions
    ],
)
def test_tables_that_are_gone_are_made_again(postgres_url, colour, beside, drop):
    store = colour(postgres_url)
    desk_of(store).grant("a")
    beside(postgres_url).execute(drop)
    refused(desk_of(store), "nothing was changed")
    desk_of(store).grant("b")


def test_a_text_that_cannot_be_stored_did_not_happen(postgres_url, colour):
    with pytest.raises(StoreError, match="0x00") as caught:
        desk_of(colour(postgres_url)).claim("a", label="\0")
    assert caught.value.happened is False


# What a person has to mend


def test_a_wrong_password_says_so(postgres, colour):
    url = postgres.url("postgres", "mistyped")
    with pytest.raises(ConfigurationError, match="give the right user and password") as caught:
        desk_of(colour(url)).claim("a")
    assert "mistyped" not in str(caught.value)


def test_a_missing_database_says_so(postgres, colour):
    with pytest.raises(ConfigurationError, match=r"\"nowhere\" does not exist; create it"):
        desk_of(colour(postgres.url("nowhere"))).claim("a")


def test_a_role_that_may_not_make_tables_says_so(postgres, postgres_url, colour, beside):
    owner = beside(postgres_url)
    owner.execute("REVOKE CREATE ON SCHEMA public FROM public")
    owner.execute("CREATE ROLE guest LOGIN PASSWORD 'pw'")
    guest = postgres_url.replace(f"postgres:{postgres.password}", "guest:pw")
    try:
        store = colour(guest)
        with pytest.raises(ConfigurationError, match="let the owner of the database create"):
            desk_of(store).claim("a")
        desk_of(colour(postgres_url)).grant("a")
        with pytest.raises(ConfigurationError, match="grant this role"):
            desk_of(store).claim("a")
        owner.execute("GRANT SELECT ON oncekey_schema TO guest")
        owner.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON oncekey_records TO guest")
        assert type(desk_of(store).claim("b")) is Busy
    finally:
        owner.execute("DROP OWNED BY guest")
        owner.execute("DROP ROLE guest")


def test_an_old_server_is_refused(postgres_url, colour, monkeypatch):
    monkeypatch.setattr(schema, "OLDEST_SERVER", 99)
    with pytest.raises(ConfigurationError, match="needs 99 or newer"):
        desk_of(colour(postgres_url)).claim("a")


def test_a_host_that_does_not_listen_did_not_happen(colour):
    url = "postgresql://postgres@127.0.0.1:1/db"
    refused(desk_of(colour(url)), "127.0.0.1:1/db cannot be reached", unreachable=True)


@pytest.mark.parametrize(
    ("error", "happened"),
    [
        (psycopg.errors.SerializationFailure(), False),
        (psycopg.errors.DeadlockDetected(), False),
        (psycopg.errors.LockNotAvailable(), False),
        (psycopg.errors.QueryCanceled(), False),
        (psycopg.errors.DiskFull(), False),
        (psycopg.errors.AdminShutdown(), None),
        (psycopg.errors.CrashShutdown(), None),
        (psycopg.errors.ConnectionFailure(), None),
        (psycopg.OperationalError("no words of the server"), None),
        (psycopg.DataError("not sent"), False),
    ],
)
def test_every_kind_of_error_is_known(error, happened):
    said = explain(error, "here")
    assert isinstance(said, StoreError)
    assert said.happened is happened


def room(store):
    """Where the coroutines of this loop wait for a connection, with fast paths or without."""
    link = store.links.here()
    return getattr(link, "_link", link)._room


async def gone_on(store):
    return (await store.get(None, "order-1")).nonce == "b"


@pytest.mark.usefixtures("unbound")
async def test_a_task_that_is_cut_off_leaves_no_connection_in_doubt(
    postgres_url, proxied_url, proxy, beside, until_async
):
    store = AsyncPostgresStore(proxied_url, size=1, timeout=PATIENCE)
    ask = desk_of(None).ask("a", lease=1)
    await store.claim(ask)
    other = beside(postgres_url)
    other.execute("BEGIN")
    other.execute("SELECT 1 FROM oncekey_records FOR UPDATE")
    task = asyncio.create_task(store.claim(desk_of(None).ask("b")))
    locked = BACKENDS + "current_database()"
    await until_async(lambda: other.execute(locked).fetchall())
    room(store)._patience = 0.05
    with pytest.raises(StoreError, match="raise size=") as caught:
        await store.get(None, "order-1")
    assert caught.value.happened is False
    room(store)._patience = PATIENCE
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert proxy.cancels == 0  # the server may be committing, and go on without its standby
    assert (await store.get(None, "order-1")).nonce == "a"
    other.execute("ROLLBACK")
    await until_async(lambda: gone_on(store))  # the server has not heard that nobody waits
    await store.aclose()


@pytest.mark.usefixtures("unbound")
async def test_a_task_that_is_cut_off_leaves_no_connection_of_a_callers_pool_in_doubt(
    postgres_url, beside, until_async
):
    async with AsyncConnectionPool(postgres_url, open=False, min_size=1, max_size=1) as pool:
        store = AsyncPostgresStore(pool, timeout=PATIENCE)
        await store.claim(desk_of(None).ask("a", lease=1))
        other = beside(postgres_url)
        other.execute("BEGIN")
        other.execute("SELECT 1 FROM oncekey_records FOR UPDATE")
        task = asyncio.create_task(store.claim(desk_of(None).ask("b")))
        await until_async(lambda: other.execute(BACKENDS + "current_database()").fetchall())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        other.execute("ROLLBACK")
        await until_async(lambda: gone_on(store))


def test_a_connection_that_a_callers_pool_lost_is_replaced(postgres_url, beside):
    with ConnectionPool(postgres_url, open=True, min_size=1, max_size=1) as pool:
        store = PostgresStore(pool)
        desk_of(store).grant("a")
        ending = "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity WHERE datname = "
        beside(postgres_url).execute(ending + "current_database() AND pid <> pg_backend_pid()")
        assert type(desk_of(store).claim("b")) is Busy


async def test_a_connection_that_a_callers_async_pool_lost_is_replaced(postgres_url, beside):
    pool = AsyncConnectionPool(postgres_url, open=False, min_size=1, max_size=1)
    async with pool:
        store = AsyncPostgresStore(pool)
        ask = desk_of(None).ask("a")
        assert type(await store.claim(ask)) is type(await store.claim(ask))
        ending = "SELECT pg_terminate_backend(pid, 300000) FROM pg_stat_activity WHERE datname = "
        beside(postgres_url).execute(ending + "current_database() AND pid <> pg_backend_pid()")
        assert type(await store.claim(desk_of(None).ask("b"))) is Busy
        async with pool.connection():
            pool.timeout = 0.05
            with pytest.raises(StoreError, match="cannot be reached") as caught:
                await store.claim(ask)
        assert caught.value.happened is False


def test_connections_that_a_callers_pool_has_closed_are_forgotten(postgres_url):
    with ConnectionPool(postgres_url, open=True, min_size=1, max_size=1) as pool:
        store = PostgresStore(pool)
        for number in range(3):
            desk_of(store, f"order-{number}").grant("a")
            with pool.connection() as mine:
                mine.close()
        desk_of(store).get()
        assert len(store.links.here()._lender._lines) == 1


def test_a_connection_that_was_closed_while_it_was_idle_is_replaced(postgres_url):
    store = PostgresStore(postgres_url)
    desk_of(store).grant("a")
    store.links.here()._lender._idle[0].connection.close()
    assert type(desk_of(store).claim("b")) is Busy
    store.close()
