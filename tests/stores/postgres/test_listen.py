"""Who waits for a record is woken by PostgreSQL; where nobody waits, nothing is called out."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from psycopg_pool import ConnectionPool

from oncekey import Once, StoreError
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.stores.postgres import listen, listen_async
from oncekey.stores.postgres.statements import channel
from oncekey.testing.conformance.base import DONE, Desk
from tests.patience import PATIENCE, until_async
from tests.servers.postgres_fixtures import beside, colour, postgres, postgres_url
from tests.servers.postgres_proxy_fixtures import proxied_url, proxy
from tests.still import patiently

__all__ = ["beside", "colour", "postgres", "postgres_url", "proxied_url", "proxy"]

MINUTE = 60_000_000
LONG = 2 * PATIENCE  # who is not woken is too late


def desk_of(store, key="order-1", lease=MINUTE):
    return Desk(store, lease=lease, ttl=MINUTE, key=key)


def marked(connection):
    return connection.execute("SELECT 1 FROM oncekey_records WHERE waited = token").fetchall()


@contextmanager
def watching(store, record, seconds=LONG):
    """Somebody watches in the block, and has been woken at its end."""
    thread = threading.Thread(target=store.watch, args=(None, record.key, record.token, seconds))
    thread.start()
    yield thread
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture
def waiter(colour, postgres_url):
    """A store of the colour, with a loop of its own."""
    return colour(postgres_url)


ENDS = {
    "settle": lambda desk, owner: desk.settle(owner),
    "release": lambda desk, owner: desk.release(owner),
    "hold": lambda desk, owner: desk.release(owner, uncertain=True, hold=True),
    "forget": lambda desk, owner: desk.forget(owner, force=True),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_waiter_is_woken_when_the_attempt_ends(end, postgres_url, waiter, beside, until):
    desk = desk_of(PostgresStore(postgres_url))
    owner, look = desk.grant("a"), beside(postgres_url)
    with watching(waiter, owner):
        until(lambda: marked(look))
        assert ENDS[end](desk, owner) is DONE
    desk.store.close()


def test_a_waiter_is_woken_when_the_attempt_is_taken_over(postgres_url, waiter, beside, until):
    desk = desk_of(PostgresStore(postgres_url))
    owner, look = desk.grant("a"), beside(postgres_url)
    with watching(waiter, owner):
        until(lambda: marked(look))
        look.execute("UPDATE oncekey_records SET lease_end = 1")
        desk.grant("b")
    desk.store.close()


def test_several_wait_for_one(postgres_url, beside, until):
    store = PostgresStore(postgres_url)
    desk = desk_of(store)
    owner, look = desk.grant("a"), beside(postgres_url)
    with watching(store, owner), watching(store, owner), watching(store, owner):
        # The mark is set by the first; the last has asked for it when all of them listen.
        asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%oncekey_watch_v1%' "
        asked += "AND state = 'idle' AND datname = current_database()"
        until(lambda: look.execute(asked).fetchone() == (3,))
        desk.settle(owner)
    store.close()


def test_what_does_not_run_is_not_waited_for(postgres_url, colour):
    store = colour(postgres_url)
    desk = desk_of(store)
    owner = desk.grant("a")
    store.watch(None, "order-1", owner.token + 1, LONG)
    store.watch(None, "another", owner.token, LONG)
    store.watch("scope", "order-1", owner.token, LONG)
    desk.settle(owner)
    store.watch(None, "order-1", owner.token, LONG)


def test_nobody_waits_longer_than_asked_or_than_the_lease(postgres_url, colour):
    store = colour(postgres_url)
    store.watch(None, "order-1", desk_of(store).grant("a").token, 0.02)
    short = desk_of(store, "short", lease=50_000).grant("a")
    store.watch(None, "short", short.token, LONG)
    assert desk_of(store, "short").grant("b").attempt == 2


def test_nothing_is_called_out_where_nobody_waits(postgres_url, colour, beside):
    store = colour(postgres_url)
    ear, mouth = beside(postgres_url), beside(postgres_url)
    name = channel(None, "order-1")
    ear.execute(f"LISTEN {name}")
    desk = desk_of(store)
    for end in ENDS.values():
        owner = desk.grant("a")
        assert end(desk, owner) is DONE
        desk.forget(owner, force=True)
    held = desk.grant("b")
    desk.release(held, uncertain=True, hold=True)
    assert desk.resolve(held, status="released") is DONE
    again = desk.grant("c", lease=1)
    assert desk.grant("d").token > again.token
    mouth.execute(f"NOTIFY {name}, 'the first call'")
    heard = [call.payload for call in ear.notifies(timeout=LONG, stop_after=1)]
    assert heard == ["the first call"]


def test_a_record_calls_once_however_often_its_end_is_told(postgres_url, beside):
    store = PostgresStore(postgres_url)
    desk = desk_of(store)
    ear, mouth = beside(postgres_url), beside(postgres_url)
    name = channel(None, "order-1")
    ear.execute(f"LISTEN {name}")
    owner = desk.grant("a")
    store.watch(None, "order-1", owner.token, 0.01)
    for _ in range(3):
        assert desk.release(owner) is DONE
    again = desk.grant("b")
    assert desk.settle(again) is DONE
    mouth.execute(f"NOTIFY {name}, 'after'")
    heard = []
    for call in ear.notifies(timeout=LONG):
        heard.append(call.payload)
        if call.payload == "after":
            break
    assert heard == ["", "after"]
    store.close()


def test_more_waiters_than_there_are_places_come_back_soon(
    postgres_url, monkeypatch, beside, until
):
    monkeypatch.setattr(listen, "_WAITERS", 1)
    store = PostgresStore(postgres_url)
    desk = desk_of(store)
    owner, look = desk.grant("a"), beside(postgres_url)
    with watching(store, owner):
        until(lambda: marked(look))
        store.watch(None, "order-1", owner.token, LONG)
        desk.settle(owner)
    store.close()


async def test_more_waiting_tasks_than_places_come_back_soon(postgres_url, monkeypatch, beside):
    monkeypatch.setattr(listen_async, "_WAITERS", 1)
    store, look = AsyncPostgresStore(postgres_url), beside(postgres_url)
    owner = (await store.claim(desk_of(None).ask("a"))).record
    waits = [asyncio.create_task(store.watch(None, "order-1", owner.token, LONG)) for _ in "ab"]
    done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(left)) == (1, 1)
    (task,) = left
    await until_async(lambda: marked(look))
    task.cancel()  # what it listened on is not used again
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not store._watches.here()._lender._idle
    await store.aclose()


def test_a_thread_that_is_interrupted_leaves_nobody_listening(postgres_url, monkeypatch):
    store = PostgresStore(postgres_url)
    owner = desk_of(store).grant("a")

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(listen, "listen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.watch(None, "order-1", owner.token, LONG)
    assert not store._watches.here()._lender._idle
    store.close()


def test_waiters_take_no_connection_from_the_verbs(postgres_url, beside, until):
    store = PostgresStore(postgres_url, size=1, patience=PATIENCE)
    desk = desk_of(store)
    owner, look = desk.grant("a"), beside(postgres_url)
    with watching(store, owner):
        until(lambda: marked(look))
        assert desk.settle(owner) is DONE
    store.close()


def test_without_listening_a_waiter_comes_back_soon(postgres_url, colour, beside):
    store = colour(postgres_url, listen=False)
    owner = desk_of(store).grant("a")
    store.watch(None, "order-1", owner.token, LONG)
    assert not marked(beside(postgres_url))


def test_a_pool_of_the_caller_is_not_used_to_wait(postgres_url, beside):
    with ConnectionPool(postgres_url, open=True, min_size=1, max_size=1) as pool:
        store = PostgresStore(pool)
        owner = desk_of(store).grant("a")
        store.watch(None, "order-1", owner.token, LONG)
        assert not marked(beside(postgres_url))


def test_a_store_that_is_gone_says_so(proxied_url, proxy, colour):
    store = colour(proxied_url, timeout="150ms")
    owner = patiently(desk_of(store).grant, "a")
    patiently(store.watch, None, "order-1", owner.token, 0.01)
    proxy.fall_silent()
    with pytest.raises(StoreError, match="said nothing") as caught:
        store.watch(None, "order-1", owner.token, LONG)
    assert caught.value.unreachable
    proxy.close()
    with pytest.raises(StoreError, match="cannot be reached"):
        store.watch(None, "order-1", owner.token, LONG)


def test_a_server_that_answers_with_an_error_says_so(postgres_url, colour, beside):
    store = colour(postgres_url)
    owner = desk_of(store).grant("a")
    store.watch(None, "order-1", owner.token, 0.01)
    beside(postgres_url).execute("DROP TABLE oncekey_records CASCADE")
    with pytest.raises(StoreError):
        store.watch(None, "order-1", owner.token, LONG)


def test_a_waiting_duplicate_is_answered_when_the_original_ends(postgres_url, beside, until):
    first, second = Once(postgres_url, cache=False), Once(postgres_url, cache=False)
    go, look, said = threading.Event(), beside(postgres_url), []

    def work():
        go.wait(LONG)
        return "paid"

    threads = [
        threading.Thread(target=lambda: said.append(first.run("order-1", work))),
        threading.Thread(
            target=lambda: said.append(second.options(wait=PATIENCE).run("order-1", work))
        ),
    ]
    threads[0].start()
    found = "SELECT 1 FROM pg_tables WHERE tablename = 'oncekey_records'"
    until(lambda: look.execute(found).fetchall())
    until(lambda: look.execute("SELECT 1 FROM oncekey_records").fetchall())
    threads[1].start()
    until(lambda: marked(look))
    go.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert said == ["paid", "paid"]
    first.close()
    second.close()
