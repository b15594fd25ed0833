"""`watch`: whoever waits for an attempt is woken when it ends; nobody pays where nobody does."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio
from redis.client import PubSub

from oncekey.core.requests import Forget, Granted, Resolve, Scan, Verdict
from oncekey.errors import StoreError, UnreadableError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.redis.pubsub import Seats, listening
from tests.patience import PATIENCE, until, until_async
from tests.servers.redis_asks import HOUR, ask, release, settle
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server
from tests.still import standing_still

__all__ = ["another_redis", "empty_redis", "redis_server"]

LONG = 2 * PATIENCE  # who is not woken is too late
NAME = "idempotency:test-123"


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def store(empty_redis):
    store = RedisStore.from_url(empty_redis.url)
    yield store
    store.close()


@pytest.fixture
def waiting(store, client):
    """Starts a thread that watches, and returns when the record says that somebody does."""
    with ThreadPoolExecutor(1) as pool:

        def start(token, seconds=LONG):
            future = pool.submit(store.watch, None, "test-123", token, seconds)
            until(lambda: awaited(client))
            return future

        yield start


def awaited(client):
    """Whether the record says that somebody waits for its end."""
    return client.getrange(NAME, 10, 10) == b"\x01"


def published(client):
    return client.info("commandstats").get("cmdstat_publish", {"calls": 0})["calls"]


def resolve(record):
    return Resolve(
        None,
        "test-123",
        token=record.token,
        status="released",
        result=None,
        error=None,
        ttl=HOUR,
    )


ENDS = {
    "settle": lambda store, record: store.settle(settle(record)),
    "release": lambda store, record: store.release(release(record)),
    "hold": lambda store, record: store.release(release(record, hold=True)),
    "forget": lambda store, record: store.forget(
        Forget(None, "test-123", token=record.token, force=True)
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_end_wakes_those_who_wait(end, store, client, waiting):
    record = store.claim(ask()).record
    watching = waiting(record.token)
    client.config_resetstat()
    assert ENDS[end](store, record) is Verdict.DONE
    watching.result(PATIENCE)
    assert published(client) == 1
    assert not awaited(client)
    assert ENDS[end](store, record) is Verdict.DONE
    assert published(client) == 1


@pytest.mark.parametrize("status", ["released", "completed"])
def test_a_resolve_wakes_those_who_came_while_it_ran(status, store, client):
    record = store.claim(ask()).record
    store.release(release(record, hold=True))
    client.setrange(NAME, 10, b"\x01")  # by one who saw it running, in the last moment
    client.config_resetstat()
    asked = resolve(record)
    asked.status = status
    assert store.resolve(asked) is Verdict.DONE
    assert published(client) == 1
    assert not awaited(client)


def test_nothing_is_published_where_nobody_waits(store, client):
    client.config_resetstat()
    for end in ENDS.values():
        end(store, store.claim(ask()).record)
        client.delete(NAME)
    assert published(client) == 0


def test_many_wait_for_one(empty_redis, store, client):
    record = store.claim(ask()).record
    with ThreadPoolExecutor(5) as pool:
        watching = [pool.submit(store.watch, None, "test-123", record.token, LONG) for _ in "12345"]
        until(lambda: client.pubsub_numsub(f"{NAME}:ended")[0][1] == 5)
        until(lambda: awaited(client))
        store.settle(settle(record))
        for one in watching:
            one.result(PATIENCE)
    until(lambda: client.pubsub_numsub(f"{NAME}:ended")[0][1] == 0)


def test_what_does_not_run_is_not_waited_for(store, client):
    store.watch(None, "none", 1, LONG)
    record = store.claim(ask()).record
    store.watch(None, "test-123", record.token + 1, LONG)
    store.settle(settle(record))
    store.watch(None, "test-123", record.token, LONG)
    assert not awaited(client)


def test_the_time_is_kept(store):
    record = store.claim(ask()).record
    start = time.monotonic()
    store.watch(None, "test-123", record.token, 0.05)
    assert time.monotonic() - start >= 0.05


async def test_coroutines_are_woken_too(empty_redis, client):
    store = RedisStore.from_url(empty_redis.url).as_async()
    record = (await store.claim(ask())).record
    watching = asyncio.ensure_future(store.watch(None, "test-123", record.token, LONG))
    await until_async(lambda: awaited(client))
    await store.settle(settle(record))
    await asyncio.wait_for(watching, PATIENCE)
    await store.watch(None, "test-123", record.token, LONG)
    record = (await store.claim(ask("other"))).record
    await store.watch(None, "other", record.token, 0.05)
    await store.aclose()


async def test_a_coroutine_that_stops_waiting_leaves_nothing_behind(empty_redis, client):
    store = AsyncRedisStore.from_url(empty_redis.url)
    record = (await store.claim(ask())).record
    watching = asyncio.ensure_future(store.watch(None, "test-123", record.token, LONG))
    await until_async(lambda: awaited(client))
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    await until_async(lambda: client.pubsub_numsub(f"{NAME}:ended")[0][1] == 0)
    await store.settle(settle(record))
    await store.aclose()


async def test_a_cancellation_that_a_command_has_swallowed_still_counts(empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)
    task = asyncio.current_task()
    async with store.clients.listening(b"channel") as ears:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await ears.wait(LONG)
        task.uncancel()
    await store.aclose()


def test_what_redis_py_returns_too_early_is_no_message(client, monkeypatch):
    """Its time-out may end a moment before ours."""
    told = iter([None, {"type": "message"}, "not asked for"])
    with listening(client, b"channel", Seats(4)) as ears:
        monkeypatch.setattr(PubSub, "get_message", lambda *_, **__: next(told))
        ears.wait(LONG)
    assert next(told) == "not asked for"


def test_a_record_that_was_waited_for_is_not_larger(store, client, waiting):
    key = "k" * 200
    record = store.claim(ask(key, nonce="0123456789abcdef")).record
    client.setrange(f"idempotency:{key}", 10, b"\x01")
    store.settle(settle(record, None))
    assert client.memory_usage(f"idempotency:{key}") < 500


# When it cannot be


def test_a_server_that_goes_away_is_told_of(another_redis):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    record = store.claim(ask()).record
    with ThreadPoolExecutor(1) as pool, server.client() as client:
        watching = pool.submit(store.watch, None, "test-123", record.token, LONG)
        until(lambda: awaited(client))
        server.kill()
        with pytest.raises(StoreError):
            watching.result(PATIENCE)
    with pytest.raises(StoreError, match="cannot be reached"):
        store.watch(None, "test-123", record.token, LONG)
    store.close()


async def test_coroutines_are_told_as_well(another_redis):
    server = another_redis()
    store = AsyncRedisStore.from_url(server.url)
    server.stop()
    with pytest.raises(StoreError, match="cannot be reached"):
        await store.watch(None, "test-123", 1, LONG)
    await store.aclose()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("oncekey.stores.redis.pubsub._PATIENCE", 0.05)


def test_a_server_that_does_not_confirm_is_told_of(empty_redis, store, impatient):
    store.claim(ask())
    with standing_still(empty_redis), pytest.raises(StoreError, match="SUBSCRIBE"):
        store.watch(None, "test-123", 1, LONG)


async def test_so_are_coroutines(empty_redis, impatient):
    store = AsyncRedisStore.from_url(empty_redis.url)
    await store.claim(ask())
    await store.scan(Scan())  # a connection is there
    with standing_still(empty_redis), pytest.raises(StoreError, match="SUBSCRIBE"):
        await store.watch(None, "test-123", 1, LONG)
    await store.aclose()


def test_a_record_of_a_newer_release_is_not_waited_for(store, client):
    store.claim(ask())
    client.setrange(NAME, 4, b"\x02")  # its format
    with pytest.raises(UnreadableError):
        store.watch(None, "test-123", 1, LONG)


@pytest.fixture
def shy(empty_redis, client):
    """The URL of a user who may neither subscribe nor publish."""
    client.acl_setuser(
        "deaf", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all", "-@pubsub"]
    )
    yield f"redis://deaf:pw@127.0.0.1:{empty_redis.port}/0"
    client.acl_deluser("deaf")


def test_a_user_who_may_not_listen_naps_and_still_ends_attempts(shy, client):
    store = RedisStore.from_url(shy)
    record = store.claim(ask()).record
    start = time.monotonic()
    store.watch(None, "test-123", record.token, LONG)
    assert time.monotonic() - start < LONG / 2
    assert not awaited(client)
    client.setrange(NAME, 10, b"\x01")
    assert store.settle(settle(record)) is Verdict.DONE
    assert not awaited(client)
    asyncio.run(store.as_async().watch(None, "test-123", record.token, LONG))
    store.close()


def test_listeners_leave_connections_to_the_verbs(empty_redis, client):
    store = RedisStore.from_url(f"{empty_redis.url}?max_connections=4")
    record = store.claim(ask()).record
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(store.watch, None, "test-123", record.token, LONG)
        until(lambda: awaited(client))
        for _ in range(3):  # there is one seat: the others nap
            store.watch(None, "test-123", record.token, 0.01)
        assert client.pubsub_numsub(f"{NAME}:ended")[0][1] == 1
        store.settle(settle(record))
        first.result(PATIENCE)
    store.close()


async def test_a_client_that_is_not_plain_naps(empty_redis):
    class Special(redis.Redis):
        pass

    class AsyncSpecial(redis.asyncio.Redis):
        pass

    with Special(port=empty_redis.port) as own:
        store = RedisStore(own)
        assert isinstance(store.claim(ask()), Granted)
        store.watch(None, "test-123", 1, LONG)
    async with AsyncSpecial(port=empty_redis.port) as own:
        await AsyncRedisStore(own).watch(None, "test-123", 1, LONG)


def test_a_child_that_is_forked_may_listen(store):
    record = store.claim(ask()).record
    store.clients._seats._free.clear()
    store.clients.after_fork()
    thread = threading.Thread(target=store.watch, args=(None, "test-123", record.token, 0.01))
    thread.start()
    thread.join()
    assert store.clients._seats._free
