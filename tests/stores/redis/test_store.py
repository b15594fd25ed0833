"""The Redis store on a real server: where its records are, what they cost, and its clients."""

import asyncio
import gc
import multiprocessing

import msgspec
import pytest
import redis
import redis.asyncio

from oncekey import Once
from oncekey.core.requests import Busy, Forget, Granted, Note, Replay, Resolve, Scan, Verdict
from oncekey.errors import ConfigurationError, UnreadableError
from oncekey.stores import AsyncRedisStore, RedisStore, open_store
from oncekey.stores.adapters import Threaded
from oncekey.stores.redis.client import Clients
from tests.patience import PATIENCE, until
from tests.servers.redis_asks import HOUR, ask, release, settle
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

DONE = Verdict.DONE


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def store(empty_redis):
    store = RedisStore.from_url(empty_redis.url)
    yield store
    store.close()


# Where records are


@pytest.mark.row("J3")
def test_a_record_is_one_string_under_prefix_scope_and_key(store, client):
    store.claim(ask())
    store.claim(ask("a/b", scope="s%"))
    assert sorted(client.keys()) == [b"idempotency:s%25/a%2Fb", b"idempotency:test-123"]
    assert client.type("idempotency:test-123") == b"string"


def test_prefixes_keep_records_apart(empty_redis, client):
    one = open_store(empty_redis.url, prefix="a*[x]:")
    other = RedisStore(client, prefix="ab[x]:")
    assert isinstance(one.claim(ask()), Granted)
    assert isinstance(other.claim(ask()), Granted)
    assert sorted(client.keys()) == [b"a*[x]:test-123", b"ab[x]:test-123"]
    assert len(one.scan(Scan()).records) == len(other.scan(Scan()).records) == 1
    one.close()


async def test_every_verb_of_a_held_records_life_for_coroutines(empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)
    ends = {"good": ("completed", b"r", None), "bad": ("failed", None, b"e")}
    for key, (status, result, error) in ends.items():
        record = (await store.claim(ask(key))).record
        owner = {"token": record.token, "nonce": record.nonce}
        assert await store.note(Note(None, key, **owner, revision=1, noted=b"x")) is DONE
        assert await store.release(release(record, hold=True)) is DONE
        ended = {"status": status, "result": result, "error": error, "ttl": HOUR}
        assert await store.resolve(Resolve(None, key, token=record.token, **ended)) is DONE
    for scope, limit, keys in ((None, 1, ["bad"]), (None, 5, ["bad", "good"]), ("s", 5, [])):
        page = await store.scan(Scan(any_scope=False, scope=scope, limit=limit))
        assert [one.key for one in page.records] == keys
    for key in ends:
        resolved = await store.get(None, key)
        assert await store.forget(Forget(None, key, token=resolved.token, force=False)) is DONE
        assert await store.get(None, key) is None
    await store.aclose()


async def test_a_scan_passes_over_what_has_gone_since_it_saw_the_name(store, monkeypatch):
    other = store.as_async()

    async def names():
        return [b"idempotency:orders/gone"]

    monkeypatch.setattr(store, "_names", lambda: [b"idempotency:orders/gone"])
    monkeypatch.setattr(other, "_names", names)
    assert store.scan(Scan()).records == (await other.scan(Scan())).records == []
    await other.aclose()


def test_a_scan_passes_over_what_is_not_a_record(store, client):
    store.claim(ask())
    client.set("idempotency:text", "x")
    client.hset("idempotency:hash", "x", "y")
    client.set(b"idempotency:\xff", "x")
    client.set("idempotency:a/b/c", "x")
    client.set("idempotency:%41", "x")
    client.script_flush()  # also where the server must be told the script first
    assert [record.key for record in store.scan(Scan()).records] == ["test-123"]
    assert [record.key for record in store.scan(Scan()).records] == ["test-123"]


async def test_so_does_one_for_coroutines(empty_redis, client):
    store = AsyncRedisStore.from_url(empty_redis.url)
    await store.claim(ask())
    client.set("idempotency:text", "x")
    client.hset("idempotency:hash", "x", "y")
    client.script_flush()
    assert [record.key for record in (await store.scan(Scan())).records] == ["test-123"]
    assert await store.purge(0, 1) == RedisStore(client).purge(0, 1) == 0
    await store.aclose()


def test_redis_removes_a_record_in_the_millisecond_in_which_it_expires(store, client):
    record = store.claim(ask()).record
    store.settle(settle(record))
    record = store.get(None, "test-123")
    left = record.expires / 1000 - int(client.time()[0]) * 1000 - client.time()[1] / 1000
    assert left - 5000 < client.pttl("idempotency:test-123") <= left + 5000


def test_what_expires_at_once_leaves_nothing(store, client):
    record = store.claim(ask()).record
    store.settle(msgspec.structs.replace(settle(record), ttl=-5000))
    assert client.keys() == []


def test_a_held_record_never_expires(store, client):
    record = store.claim(ask()).record
    store.release(release(record, hold=True))
    assert client.pttl("idempotency:test-123") == -1


def test_a_settled_record_without_result_is_small(store, client):
    key = "k" * 200
    record = store.claim(ask(key, nonce="0123456789abcdef")).record
    store.settle(settle(record, None))
    assert client.memory_usage(f"idempotency:{key}") < 500


def test_a_record_of_a_newer_release_is_left_alone(store, client):
    record = store.claim(ask()).record
    stored = client.get("idempotency:test-123")
    assert stored[:5] == b"once\x01"
    newer = b"once\x02" + stored[5:]
    client.set("idempotency:test-123", newer)
    for verb in (
        lambda: store.claim(ask()),
        lambda: store.settle(settle(record)),
        lambda: store.get(None, "test-123"),
        lambda: store.scan(Scan()),
    ):
        with pytest.raises(UnreadableError, match="newer release"):
            verb()
    assert client.get("idempotency:test-123") == newer


# Scripts and round trips


def test_a_flush_of_the_scripts_goes_unnoticed(store, client):
    record = store.claim(ask()).record
    client.script_flush()
    assert [one.key for one in store.scan(Scan()).records] == ["test-123"]
    client.script_flush()
    assert store.settle(settle(record)) is Verdict.DONE
    client.script_flush()
    assert isinstance(store.claim(ask(nonce="b")), Replay)


def calls(client):
    """How many commands the server was sent from outside, those of this question left out."""
    stats = client.info("commandstats")
    inside = {"cmdstat_get", "cmdstat_set", "cmdstat_setrange", "cmdstat_time"}
    inside |= {"cmdstat_pexpireat", "cmdstat_info"}
    return sum(stats[name]["calls"] for name in stats if name not in inside)


@pytest.mark.row("J3")
def test_two_round_trips_for_a_new_key_and_one_for_a_duplicate(empty_redis, client):
    once = Once(empty_redis.url, cache=False)
    once.run("warm", lambda: 1)
    client.config_resetstat()
    assert once.run("key", lambda: 41) == 41
    assert calls(client) == 3  # with the reset itself
    client.config_resetstat()
    assert once.run("key", lambda: 42) == 41
    assert calls(client) == 2


async def test_as_many_for_coroutines(empty_redis, client):
    once = Once(empty_redis.url, cache=False)

    async def work():
        return next(values)

    values = iter([1, 41, 42])
    await once.run_async("warm", work)
    client.config_resetstat()
    assert await once.run_async("key", work) == 41
    assert calls(client) == 3
    client.config_resetstat()
    assert await once.run_async("key", work) == 41
    assert calls(client) == 2


def test_a_server_that_hides_its_version_is_served(empty_redis, client):
    client.acl_setuser(
        "shy", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@all"], commands=["-info"]
    )
    shy = RedisStore.from_url(f"redis://shy:pw@127.0.0.1:{empty_redis.port}/0")
    assert isinstance(shy.claim(ask()), Granted)
    assert isinstance(asyncio.run(shy.as_async().claim(ask(nonce="b"))), Busy)
    shy.close()
    client.acl_deluser("shy")


# Clients


def test_the_server_is_asked_for_its_facts_once(empty_redis):
    clients = Clients.of_url(empty_redis.url)
    assert clients.facts() is clients.facts()
    clients.close()


@pytest.mark.parametrize("decode", [False, True])
def test_the_users_own_client_serves_and_stays_open(decode, empty_redis):
    with empty_redis.client(decode_responses=decode, protocol=3 if decode else 2) as client:
        store = RedisStore(client)
        record = store.claim(ask()).record
        store.settle(settle(record, b"\xff\x00"))
        assert store.get(None, "test-123").result == b"\xff\x00"
        assert store.scan(Scan()).records[0].result == b"\xff\x00"
        store.close()
        assert client.ping()


@pytest.mark.parametrize("decode", [False, True])
async def test_the_users_own_async_client_serves_and_stays_open(decode, empty_redis):
    async with redis.asyncio.Redis(port=empty_redis.port, decode_responses=decode) as client:
        store = AsyncRedisStore(client)
        record = (await store.claim(ask())).record
        await store.settle(settle(record, b"\xff\x00"))
        assert (await store.get(None, "test-123")).result == b"\xff\x00"
        assert (await store.scan(Scan())).records[0].result == b"\xff\x00"
        await store.aclose()
        assert await client.ping()


def test_each_event_loop_has_its_own_client_and_closes_it(empty_redis, client):
    def connected():
        return {one["id"] for one in client.client_list()}

    store = RedisStore.from_url(empty_redis.url).as_async()
    before = connected()

    async def claim(nonce):
        return type(await store.claim(ask(nonce=nonce)))

    assert asyncio.run(claim("a")) is Granted
    assert asyncio.run(claim("b")) is Busy
    gc.collect()
    until(lambda: connected() <= before)  # the server notices the end of a connection later


def test_a_client_that_only_blocks_serves_coroutines_on_threads(empty_redis):
    class Special(redis.Connection):
        pass

    pool = redis.ConnectionPool(connection_class=Special, port=empty_redis.port)
    store = RedisStore(redis.Redis(connection_pool=pool)).as_async()
    assert isinstance(store, Threaded)
    assert isinstance(asyncio.run(store.claim(ask())), Granted)
    pool.disconnect()


def test_a_client_of_the_other_colour_is_refused():
    with pytest.raises(ConfigurationError, match=r"RedisStore takes a client such as redis\.Redis"):
        RedisStore(redis.asyncio.Redis())
    with pytest.raises(ConfigurationError, match=r"such as redis\.asyncio\.Redis"):
        AsyncRedisStore(redis.Redis())
    with pytest.raises(ConfigurationError, match="from_url"):
        RedisStore("redis://localhost")


def _claim_in_a_loop_of_the_child(store, told):
    told.put(type(asyncio.run(store.claim(ask(nonce="child")))).__name__)


async def test_a_child_that_is_forked_out_of_a_loop_opens_a_client_of_its_own(empty_redis):
    store = AsyncRedisStore.from_url(empty_redis.url)
    assert isinstance(await store.claim(ask()), Granted)
    fork = multiprocessing.get_context("fork")
    told = fork.Queue()
    child = fork.Process(target=_claim_in_a_loop_of_the_child, args=(store, told))
    child.start()
    assert await asyncio.to_thread(told.get, timeout=PATIENCE) == "Busy"
    child.join()
    assert child.exitcode == 0
    assert isinstance(await store.claim(ask()), Granted)
    await store.aclose()


def _claim_in_child(store, told):
    told.put(type(store.claim(ask(nonce="child"))).__name__)


def test_a_forked_child_opens_connections_of_its_own(store):
    fork = multiprocessing.get_context("fork")
    assert isinstance(store.claim(ask()), Granted)
    told = fork.Queue()
    child = fork.Process(target=_claim_in_child, args=(store, told))
    child.start()
    assert told.get(timeout=PATIENCE) == "Busy"
    child.join()
    assert isinstance(store.claim(ask()), Granted)
