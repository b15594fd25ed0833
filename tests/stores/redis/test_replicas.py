"""`wait=`: a claim counts only when enough replicas have it; else it is as if it had not been."""

import os
import signal

import pytest
import redis
import redis.asyncio

from oncekey import Once
from oncekey.core.requests import Busy, Granted, Replay
from oncekey.errors import ConfigurationError, StoreError
from oncekey.stores import AsyncRedisStore, RedisStore, open_store
from oncekey.stores.redis.replicas import Replicas, taken_out
from tests.patience import PATIENCE, until
from tests.servers.redis import RedisServer
from tests.servers.redis_asks import ask, settle
from tests.servers.redis_cut import CutLine

ONE = (1, "5ms")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A primary and its replica, in step."""
    folder = tmp_path_factory.mktemp("pair")
    primary = RedisServer(folder, **{"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"})
    primary.start()
    replica = RedisServer(folder, replicaof=f"127.0.0.1 {primary.port}").start()
    yield primary, replica
    replica.stop()
    primary.stop()


@pytest.fixture
def primary(pair):
    """The primary without data, known to its replica."""
    with pair[0].client() as client:
        client.flushall()
        until(lambda: client.wait(1, 100))
    return pair[0]


@pytest.fixture
def stopped(primary, pair):
    """The replica takes nothing more until the end of the test."""
    pid = pair[1].process.pid
    os.kill(pid, signal.SIGSTOP)
    yield
    os.kill(pid, signal.SIGCONT)


def calls(client, name):
    return client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]


# What it does


def test_a_granted_claim_is_on_the_replica_and_nothing_else_waits(primary, pair):
    store = RedisStore.from_url(f"{primary.url}?wait=1,{PATIENCE / 2}s&socket_timeout={PATIENCE}")
    with primary.client() as client, pair[1].client() as replica:
        client.config_resetstat()
        record = store.claim(ask()).record
        assert replica.get("idempotency:test-123") is not None
        assert calls(client, "wait") == 1
        assert isinstance(store.claim(ask(nonce="b")), Busy)
        store.settle(settle(record))
        assert isinstance(store.claim(ask(nonce="b")), Replay)
        assert calls(client, "wait") == 1
    store.close()


def test_a_claim_short_of_replicas_is_released_and_its_code_does_not_run(primary, stopped):
    ran = []
    once = Once(RedisStore.from_url(primary.url, wait=ONE), cache=False)
    with pytest.raises(StoreError, match="reached 0 of 1 replicas within 5 ms") as told:
        once.run("key", lambda: ran.append(1))
    assert (told.value.happened, told.value.unreachable, ran) == (False, False, [])
    assert once.get("key").status == "released"
    assert Once(primary.url).run("key", lambda: 41) == 41
    once.close()


async def test_for_coroutines_it_is_the_same(primary, stopped):
    store = RedisStore.from_url(primary.url, wait=ONE).as_async()
    with pytest.raises(StoreError, match="reached 0 of 1 replicas") as told:
        await store.claim(ask())
    assert told.value.happened is False
    other = AsyncRedisStore.from_url(primary.url)
    assert isinstance(await other.claim(ask(nonce="b")), Granted)
    assert isinstance(await store.claim(ask(nonce="c")), Busy)
    await store.aclose()
    await other.aclose()


async def test_coroutines_are_granted_what_a_replica_has(primary, pair):
    store = AsyncRedisStore.from_url(
        f"{primary.url}?socket_timeout={PATIENCE}", wait=(1, PATIENCE / 2)
    )
    with primary.client() as client:
        client.script_flush()  # it is told the script, whoever has asked before
    assert isinstance(await store.claim(ask()), Granted)
    with pair[1].client() as replica:
        assert replica.exists("idempotency:test-123")
    await store.aclose()


@pytest.mark.parametrize("decode", [False, True])
def test_the_users_own_client_waits_too(decode, primary, stopped):
    with primary.client(decode_responses=decode) as client:
        with pytest.raises(StoreError, match="replicas"):
            RedisStore(client, wait=ONE).claim(ask())
        client.script_flush()
        assert isinstance(RedisStore(client).claim(ask(nonce="b")), Granted)


def test_a_claim_asked_for_again_is_waited_for_again(primary, pair, stopped):
    """The first asking was answered without waiting, as one whose reply was lost."""
    assert isinstance(RedisStore.from_url(primary.url).claim(ask()), Granted)
    again = RedisStore.from_url(primary.url, wait=ONE)
    with pytest.raises(StoreError, match="reached 0 of 1"):
        again.claim(ask())
    again.close()


# When it breaks


@pytest.fixture
def line(primary):
    line = CutLine(primary.port)
    yield line
    line.close()


@pytest.mark.parametrize("lost", ["WAIT", "release"])
def test_a_line_that_breaks_after_the_grant_leaves_it_unknown(lost, line, request):
    if lost == "release":
        request.getfixturevalue("stopped")
    store = RedisStore.from_url(line.url, wait=ONE)
    store.get(None, "warm")
    line.lose = 2 if lost == "WAIT" else 3
    with pytest.raises(StoreError, match="nobody knows") as told:
        store.claim(ask())
    assert told.value.happened is None
    store.close()


async def test_so_it_is_for_coroutines(line):
    store = AsyncRedisStore.from_url(line.url, wait=ONE)
    await store.get(None, "warm")
    line.lose = 2
    with pytest.raises(StoreError, match="nobody knows") as told:
        await store.claim(ask())
    assert told.value.happened is None
    await store.aclose()


@pytest.mark.parametrize("wait", [None, ONE])
async def test_a_key_of_somebody_else_is_left_alone(wait, primary):
    with primary.client() as client:
        client.set("idempotency:test-123", "mine")
    store = RedisStore.from_url(primary.url, wait=wait)
    other = store.as_async()
    with pytest.raises(StoreError, match="another prefix"):
        store.claim(ask())
    with pytest.raises(StoreError, match="another prefix"):
        await other.claim(ask())
    store.close()
    await other.aclose()


def test_a_server_that_is_not_there_was_not_asked(primary):
    store = RedisStore.from_url("redis://127.0.0.1:1/0", wait=ONE)
    with pytest.raises(StoreError, match="cannot be reached") as told:
        store.claim(ask())
    assert told.value.happened is False


# What is asked for


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        (1, "such as"),
        ((1,), "such as"),
        ((0, "1s"), "one replica or more"),
        ((True, "1s"), "one replica or more"),
        (("1", "1s"), "one replica or more"),
        ((1, "soon"), "the time-out of wait must be a duration"),
        ((1, 0), "more than zero"),
        ((1, "5s"), "shorter than the socket_timeout"),
    ],
)
@pytest.mark.parametrize("kind", [RedisStore, AsyncRedisStore])
def test_what_cannot_be_is_refused_before_anything_is_sent(kind, wait, words):
    with pytest.raises(ConfigurationError, match=words):
        kind.from_url("redis://localhost", wait=wait)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://h?wait=1,1s&wait=1,1s", "given twice"),
        ("redis://h?wait=1", "write wait=1,100ms"),
        ("redis://h?wait=one,1s", "write wait=1,100ms"),
        ("redis://h?wait=0,1s", "one replica or more"),
        ("redis://h?wait=1,soon", "must be a duration"),
    ],
)
def test_so_it_is_in_a_url(url, words):
    with pytest.raises(ConfigurationError, match=words):
        open_store(url)
    with pytest.raises(ConfigurationError, match="given twice"):
        RedisStore.from_url("redis://h?wait=1,1s", wait=(1, "1s"))


def test_a_url_is_left_as_it_is_but_for_wait():
    assert taken_out("redis://h/0", None) == ("redis://h/0", None)
    assert taken_out("redis://h/0?db=1", (1, 2)) == ("redis://h/0?db=1", (1, 2))
    url = "unix:///a%20b.sock?wait=2%2C100ms&db=1"
    assert taken_out(url, None) == ("unix:///a%20b.sock?db=1", (2, "100ms"))
    assert taken_out("redis://u:p%40@h?wait=1,1s", None) == ("redis://u:p%40@h", (1, "1s"))
    assert RedisStore.from_url("redis://h?wait=2,0.4ms").replicas == Replicas(2, 1)


def test_a_client_without_a_time_out_may_wait_long():
    store = RedisStore(redis.Redis(socket_timeout=None), wait=(1, "1h"))
    assert store.replicas == Replicas(1, 3_600_000)


def test_a_cluster_cannot_be_waited_for():
    class Cluster:
        def execute_command(self, *_):
            raise AssertionError

    with pytest.raises(ConfigurationError, match="min-replicas-to-write"):
        RedisStore(Cluster(), wait=ONE)
