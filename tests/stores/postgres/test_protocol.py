"""The short way to PostgreSQL: what it leaves out, it leaves out only where nobody can miss it."""

import asyncio
import signal
import socket
import threading
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.pq import ExecStatus
from psycopg.waiting import Wait
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from oncekey import StoreError
from oncekey.core.requests import Busy, Granted, Replay
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import protocol
from oncekey.testing.conformance.base import DONE, Desk
from tests.leases import wait_for_rows
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url
from tests.servers.postgres_proxy import Proxy
from tests.servers.postgres_proxy_fixtures import PLAIN, pooled_url, proxied_url, proxy

__all__ = ["beside", "colour", "pooled_url", "postgres", "postgres_url", "proxied_url", "proxy"]

MINUTE = 60_000_000
UNLIMITED = (
    "DO $$ BEGIN EXECUTE (SELECT format('ALTER FUNCTION %s SET lock_timeout = 0', "
    "oid::regprocedure) FROM pg_proc WHERE proname = 'oncekey_claim_v1'); END $$"
)
LIMIT = "SELECT current_setting('lock_timeout')"
LOCKED = "SELECT 1 FROM oncekey_records FOR UPDATE"
INSERTED = "SELECT oncekey_claim_v1('', 'order-1', 'n', null, 1, 1, false, null, '', '')"
WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
    "AND datname = current_database()"
)


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


def lived(store, key):
    """A key from its claim to its duplicate."""
    desk = desk_of(store, key)
    owner = desk.grant("a")
    assert type(desk.claim("b")) is Busy
    assert desk.settle(owner) is DONE
    assert type(desk.claim("b")) is Replay


def limits(store):
    """How long the sessions of a blocking store wait for a row."""
    lines = store.links.here()._lender._idle
    return [line.connection.execute(LIMIT).fetchone()[0] for line in lines]


# How long a row is waited for


@pytest.fixture
def impatient(monkeypatch):
    """Sessions of the store wait for a row no longer than this test wants to."""
    wait_for_rows(monkeypatch, "50ms")


@pytest.mark.usefixtures("impatient")
def test_a_claim_does_not_wait_long_for_an_insert_that_is_not_committed(
    postgres_url, colour, beside
):
    store, other = colour(postgres_url), beside(postgres_url)
    lived(store, "warm")
    with other.transaction(force_rollback=True):
        other.execute(INSERTED)
        with pytest.raises(StoreError, match="lock timeout") as caught:
            desk_of(store).claim("a")
    assert caught.value.happened is False
    lived(store, "order-1")


@pytest.mark.usefixtures("impatient")
def test_a_settle_does_not_wait_long_for_its_row(postgres_url, colour, beside):
    store, other = colour(postgres_url), beside(postgres_url)
    owner = desk_of(store).grant("a")
    with other.transaction():
        other.execute(LOCKED)
        with pytest.raises(StoreError, match="lock timeout") as caught:
            desk_of(store).settle(owner)
    assert caught.value.happened is False
    assert desk_of(store).settle(owner) is DONE


def test_a_session_of_our_own_is_told_once(postgres_url):
    store = PostgresStore(postgres_url)
    lived(store, "order-1")
    assert limits(store) == ["4s"]
    store.close()


def test_a_session_that_a_pooler_lends_to_others_as_well_is_left_alone(
    pooled_url, postgres_url, beside
):
    store = PostgresStore(pooled_url)
    lived(store, "warm")
    assert limits(store) == ["0"]
    other = beside(postgres_url)
    other.execute(
        "DO $$ BEGIN EXECUTE (SELECT format('ALTER FUNCTION %s SET lock_timeout = ''50ms''', "
        "oid::regprocedure) FROM pg_proc WHERE proname = 'oncekey_claim_v1'); END $$"
    )
    with other.transaction(force_rollback=True):
        other.execute(INSERTED)
        with pytest.raises(StoreError, match="lock timeout") as caught:
            desk_of(store).claim("a")
    assert caught.value.happened is False
    lived(store, "order-1")
    store.close()


PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'oncekey%'"


def test_the_verbs_work_behind_a_pooler(pooled_url, colour):
    store = colour(pooled_url)
    for number in range(3):
        lived(store, f"order-{number}")
    assert store.get(None, "order-1").status == "completed"


def test_a_session_behind_a_pooler_has_nothing_of_ours(pooled_url):
    store = PostgresStore(pooled_url)
    lived(store, "order-1")
    (line,) = store.links.here()._lender._idle
    assert line.connection.execute(PREPARED).fetchone() == (0,)
    store.close()


def test_behind_a_pooler_nobody_listens(pooled_url, colour, beside, postgres_url):
    store = colour(pooled_url)
    owner = desk_of(store).grant("a")
    for _ in range(2):
        store.watch(None, "order-1", owner.token, 60.0)
    marked = "SELECT count(*) FROM oncekey_records WHERE waited > 0"
    assert beside(postgres_url).execute(marked).fetchone() == (0,)


def test_connections_of_the_caller_behind_a_pooler_have_nothing_of_ours(pooled_url, beside):
    mine = beside(pooled_url)
    lived(PostgresStore(mine), "order-1")
    assert mine.execute(PREPARED).fetchone() == (0,)


def test_connections_of_the_caller_are_left_alone(postgres_url, beside):
    mine = beside(postgres_url)
    lived(PostgresStore(mine), "by a connection")
    assert mine.execute(LIMIT).fetchone() == ("0",)
    with ConnectionPool(postgres_url, min_size=1, max_size=1) as pool:
        lived(PostgresStore(pool), "by a pool")
        with pool.connection() as mine:
            assert mine.execute(LIMIT).fetchone() == ("0",)


# Answers that are not the usual ones


def test_a_session_that_has_forgotten_its_statements_is_told_them_again(postgres_url):
    store = PostgresStore(postgres_url)
    lived(store, "order-1")
    (line,) = store.links.here()._lender._idle
    line.connection.execute("DEALLOCATE ALL")
    lived(store, "order-2")
    store.close()


def test_who_waits_for_a_year_waits_long_enough(postgres_url, colour):
    store = colour(postgres_url, timeout="365d")
    lived(store, "order-1")
    lived(store, "order-2")


class Piecemeal(Proxy):
    """Replies arrive byte by byte."""

    def _back(self, client, server):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super()._back(client, Bytes(server))


class Bytes:
    """A server's replies, one byte at a time."""

    def __init__(self, server):
        self._server = server

    def recv(self, _size):
        return self._server.recv(1)


def test_an_answer_in_many_pieces_is_an_answer(postgres, postgres_url, colour):
    proxy = Piecemeal(postgres.port)
    store = colour(postgres_url.replace(f":{postgres.port}/", f":{proxy.port}/") + PLAIN)
    for number in range(3):
        lived(store, f"order-{number}")
    store.close()
    proxy.close()


# Interrupted


@pytest.fixture
def interrupted(postgres_url, beside, until):
    """Runs a claim that waits for another transaction, until Ctrl-C."""
    other, watch = beside(postgres_url), beside(postgres_url)
    main = threading.main_thread().ident

    def interrupt():
        until(lambda: watch.execute(WAITING).fetchall())
        signal.pthread_kill(main, signal.SIGINT)

    def run(store):
        other.execute("BEGIN")
        other.execute(INSERTED)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            desk_of(store).claim("a")
        thread.join()
        assert watch.execute(WAITING).fetchall()  # it was not taken back
        other.execute("ROLLBACK")
        until(lambda: not watch.execute(WAITING).fetchall())

    return run


@pytest.mark.usefixtures("unbound")
@pytest.mark.parametrize("warm", [True, False], ids=["the short way", "the long way"])
def test_who_is_interrupted_sends_no_cancel_request(proxied_url, proxy, interrupted, until, warm):
    """The server may be committing: it would go on without its standby."""
    store = PostgresStore(proxied_url, timeout=PATIENCE)
    if warm:
        lived(store, "warm")
    else:
        assert store.get(None, "order-1") is None
    interrupted(store)
    assert proxy.cancels == 0
    assert not store.links.here()._lender._idle  # the connection is closed
    until(lambda: store.get(None, "order-1") is not None)
    assert type(desk_of(store).claim("a")) is Granted  # the server has gone on with it
    store.close()


GIVEN = {
    "a connection": lambda url: psycopg.connect(url, autocommit=True),
    "a pool": lambda url: ConnectionPool(url, min_size=1, max_size=1, open=True),
}


@pytest.mark.usefixtures("without_limits")
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_a_connection_of_the_caller_is_closed_too(
    postgres_url, proxied_url, proxy, interrupted, given
):
    with given(proxied_url) as mine:
        store = PostgresStore(mine)
        lived(store, "warm")
        interrupted(store)
        assert proxy.cancels == 0
        if isinstance(mine, psycopg.Connection):
            assert mine.closed
        else:
            lived(store, "next")  # on another connection of the pool


@pytest.fixture
async def left(postgres_url, beside, until_async):
    """Runs a claim that waits for another transaction, until its task is cancelled."""
    other = beside(postgres_url)

    async def run(store):
        with other.transaction(force_rollback=True):
            other.execute(INSERTED)
            claim = asyncio.create_task(store.claim(desk_of(None).ask("a")))
            await until_async(lambda: other.execute(WAITING).fetchall())
            claim.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claim

    return run


@pytest.mark.usefixtures("without_limits")
async def test_a_connection_of_the_caller_that_a_task_leaves_is_closed(proxied_url, proxy, left):
    async with await psycopg.AsyncConnection.connect(proxied_url, autocommit=True) as mine:
        store = AsyncPostgresStore(mine)
        await store.claim(desk_of(None, "warm").ask("a"))
        await left(store)
        assert proxy.cancels == 0
        assert mine.closed


@pytest.mark.usefixtures("without_limits")
async def test_a_connection_of_a_pool_that_a_task_leaves_is_closed(proxied_url, proxy, left):
    async with AsyncConnectionPool(proxied_url, min_size=1, max_size=1, open=False) as pool:
        store = AsyncPostgresStore(pool)
        await store.claim(desk_of(None, "warm").ask("a"))
        await left(store)
        assert proxy.cancels == 0
        await store.claim(desk_of(None, "next").ask("a"))  # on another connection of the pool


@pytest.fixture
def without_limits(postgres_url, beside):
    """Sessions of the caller wait for a row as long as it takes."""
    store = PostgresStore(postgres_url)
    assert store.get(None, "order-1") is None
    store.close()
    beside(postgres_url).execute(UNLIMITED)


# A commit that fails


FAILING = """
    CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE disk_full USING MESSAGE = 'it failed at the commit';
    END
    $$;
    CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON oncekey_records
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.key = 'order-1')
        EXECUTE FUNCTION fails();
"""


def test_a_commit_that_fails_after_its_answer_was_sent_is_no_answer(postgres_url, colour, beside):
    store = colour(postgres_url)
    lived(store, "warm")
    beside(postgres_url).execute(FAILING)
    with pytest.raises(StoreError, match="it failed at the commit") as caught:
        desk_of(store).claim("a")
    assert caught.value.happened is False
    assert store.get(None, "order-1") is None
    lived(store, "next")


def test_a_server_that_refuses_says_why_on_the_short_way_too(postgres_url):
    store = PostgresStore(postgres_url)
    lived(store, "order-1")
    with pytest.raises(StoreError, match="invalid byte sequence") as caught:
        desk_of(store, "half\x00").claim("a")
    assert caught.value.happened is False
    assert isinstance(caught.value.__cause__, psycopg.Error)
    lived(store, "order-2")
    store.close()


def test_what_does_not_fit_into_the_socket_at_once_is_sent_in_pieces():
    result = SimpleNamespace(status=ExecStatus.TUPLES_OK)
    flushed, results = iter([1, 1, 0]), iter([result, None])
    pgconn = SimpleNamespace(
        flush=lambda: next(flushed),
        is_busy=lambda: False,
        get_result=lambda: next(results),
        notifies=lambda: None,
    )
    asking = protocol._answer(pgconn, PATIENCE)
    assert next(asking) == Wait.W
    assert asking.send(0) == Wait.W  # it cannot be written to yet
    with pytest.raises(StopIteration) as ended:
        asking.send(Wait.W)
    assert ended.value.value is result
