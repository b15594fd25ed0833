"""A PostgreSQL that stands still blocks nobody, and connections that nobody needs are closed."""

import os
import signal
import threading

import pytest

from oncekey import StoreError
from oncekey.core.requests import Busy, Replay
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import pool, pool_async
from oncekey.stores.postgres.address import Target
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url
from tests.servers.postgres_proxy_fixtures import proxied_url, proxy
from tests.still import patiently

__all__ = ["beside", "colour", "postgres", "postgres_url", "proxied_url", "proxy"]

MINUTE = 60_000_000
OURS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'oncekey' AND datname = "


def desk_of(store, key="order-1"):
    return Desk(store, lease=MINUTE, ttl=MINUTE, key=key)


def backends(connection):
    return [pid for (pid,) in connection.execute(OURS + "current_database()").fetchall()]


@pytest.fixture
def stopped(beside, postgres_url):
    """Stops the store's backends, and lets them go on in the end."""
    pids = []

    def stop():
        pids.extend(backends(beside(postgres_url)))
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    def go_on():
        while pids:
            os.kill(pids.pop(), signal.SIGCONT)

    yield stop, go_on
    go_on()


@pytest.mark.parametrize("result", [b"small", bytes(16 << 20)], ids=["unread", "unsent"])
def test_a_server_that_stands_still_is_given_up(postgres_url, colour, stopped, result):
    stop, go_on = stopped
    store = colour(postgres_url, timeout="150ms")
    owner = patiently(desk_of(store).grant, "a")
    warm = patiently(desk_of(store, "warm").grant, "a")
    patiently(desk_of(store, "warm").settle, warm)
    stop()
    # On a busy machine an earlier time-out may have ended the connection that is taken here.
    given_up = r"said nothing for 0\.15 seconds|was lost before the answer came"
    with pytest.raises(StoreError, match=given_up) as caught:
        desk_of(store).settle(owner, result=result)
    assert (caught.value.happened, caught.value.unreachable) == (None, True)
    go_on()
    assert type(patiently(desk_of(store).claim, "b")) in (Busy, Replay)  # on another connection
    assert patiently(desk_of(store).settle, owner, result=b"small") is DONE


def test_a_large_result_arrives(postgres_url, colour):
    desk = desk_of(colour(postgres_url))
    result = os.urandom(16 << 20)
    assert desk.settle(desk.grant("a"), result=result) is DONE
    assert desk.read().result == result


def test_replies_that_stop_coming_are_not_waited_for(proxied_url, proxy, colour):
    store = colour(proxied_url, timeout="150ms")
    patiently(desk_of(store, "warm").grant, "a")
    proxy.fall_silent()
    with pytest.raises(StoreError, match="said nothing") as caught:
        desk_of(store).claim("a")
    assert (caught.value.happened, caught.value.unreachable) == (None, True)
    proxy.speak_again()
    patiently(desk_of(store).grant, "a")
    assert type(patiently(desk_of(store).claim, "b")) is Busy


def test_a_verb_that_was_not_sent_yet_did_not_happen(proxied_url, proxy, colour):
    proxy.fall_silent()  # from the first statement on, which looks for the schema
    store = colour(proxied_url, timeout="150ms", patience=PATIENCE)
    with pytest.raises(StoreError, match="said nothing") as caught:
        desk_of(store).claim("a")
    assert (caught.value.happened, caught.value.unreachable) == (False, True)


def test_a_migration_that_stops_is_given_up(proxied_url, proxy, colour, monkeypatch):
    proxy.fall_silent(after=1)
    store = colour(proxied_url, timeout=PATIENCE, patience=PATIENCE)
    with monkeypatch.context() as hasty, pytest.raises(StoreError, match="said nothing") as caught:
        for module in (pool, pool_async):
            hasty.setattr(module, "_MIGRATING", 0.15)
        desk_of(store).claim("a")
    assert (caught.value.happened, caught.value.unreachable) == (False, True)
    proxy.speak_again()
    desk_of(store).grant("a")


def test_a_server_that_does_not_let_us_in_is_given_up(proxied_url, proxy):
    """It listens, and never says a word. One colour: libpq waits for two seconds at least."""
    proxy.fall_silent(after=-1)
    store = PostgresStore(proxied_url, patience="1s")
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        desk_of(store).claim("a")
    assert (caught.value.happened, caught.value.unreachable) == (False, True)


def test_dead_peers_are_looked_for_unless_the_caller_has_other_wishes():
    usual = Target.of("postgresql://host/db", 1, "5s", "4s", listen=True).options
    assert usual["connect_timeout"] == 5
    assert usual["tcp_user_timeout"] == 8000
    assert [usual[f"keepalives_{name}"] for name in ("idle", "interval", "count")] == [4, 2, 3]
    url = "postgresql://host/db?connect_timeout=9&keepalives_idle=7"
    other = Target.of(url, 1, "5s", "4s", listen=True).options
    assert not {"connect_timeout", "keepalives_idle"} & set(other)


# Connections that nobody needs


def test_unused_connections_are_closed_after_a_while(postgres_url, monkeypatch):
    store = PostgresStore(postgres_url)
    lender = store.links.here()._lender
    lines = [lender.take() for _ in range(5)]
    for line in lines:
        lender.give(line)
    assert len(lender._idle) == 5  # they were used just now
    monkeypatch.setattr(pool, "_IDLE", -1.0)
    for left in (4, 3, 2, 2):
        lender.give(lender.take())
        assert len(lender._idle) == left
    assert [line.connection.closed for line in lines] == [True, True, True, False, False]
    store.close()


async def test_unused_connections_of_a_loop_are_closed_after_a_while(postgres_url, monkeypatch):
    store = AsyncPostgresStore(postgres_url)
    lender = store.links.here()._link._lender
    lines = [await lender.take() for _ in range(5)]
    for line in lines:
        await lender.give(line)
    assert len(lender._idle) == 5
    monkeypatch.setattr(pool_async, "_IDLE", -1.0)
    for left in (4, 3, 2, 2):
        await lender.give(await lender.take())
        assert len(lender._idle) == left
    await store.aclose()


def test_a_connection_that_is_in_use_while_the_store_closes_is_closed_afterwards(postgres_url):
    store = PostgresStore(postgres_url)
    lender = store.links.here()._lender
    line = lender.take()
    store.close()
    lender.give(line)
    assert line.connection.closed
    desk_of(store).grant("a")
    store.close()


def test_many_threads_share_few_connections(postgres_url, beside):
    store = PostgresStore(postgres_url, size=3, patience=PATIENCE)
    desk_of(store, "warm").grant("a")

    def work(number):
        for turn in range(10):
            desk_of(store, f"{number}-{turn}").grant("a")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(backends(beside(postgres_url))) <= 3
    store.close()
