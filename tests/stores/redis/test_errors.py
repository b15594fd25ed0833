"""The Redis store when the server refuses, dies or does not answer: what it says, and is so."""

import asyncio

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncekey.core.requests import Busy, Granted, Note, Renew, Scan, Verdict
from oncekey.errors import ConfigurationError, StoreError
from oncekey.stores import AsyncRedisStore, RedisStore, open_store
from tests.servers.redis_asks import HOUR, ask, release, settle
from tests.servers.redis_cut import CutLine
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server
from tests.still import patiently, standing_still

__all__ = ["another_redis", "empty_redis", "redis_server"]


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def store(empty_redis):
    store = RedisStore.from_url(empty_redis.url)
    yield store
    store.close()


def refused(verb, **words):
    with pytest.raises(StoreError) as told:
        verb()
    assert told.value.happened is words.get("happened", False)
    assert words["match"] in str(told.value)


def test_a_full_server_refuses_new_claims_and_learns_how_running_ones_end(another_redis):
    server = another_redis(**{"maxmemory-policy": "noeviction"})
    store = RedisStore.from_url(server.url)
    owner = store.claim(ask()).record
    owned = {"token": owner.token, "nonce": owner.nonce}
    second = store.claim(ask("second")).record
    with server.client() as client:
        client.config_set("maxmemory", "1")
        refused(lambda: store.claim(ask("new")), match="is full")
        assert isinstance(store.claim(ask(nonce="b")), Busy)
        refused(
            lambda: store.note(Note(None, "test-123", **owned, noted=b"n", revision=1)),
            match="is full",
        )
        ends = [
            lambda: store.renew(Renew(None, "test-123", **owned, lease=HOUR, ttl=HOUR)),
            lambda: store.settle(settle(owner)),
            lambda: store.release(release(second)),
        ]
        for verb in ends:
            if server.version >= (7,):
                assert verb() is Verdict.DONE
            else:  # it knows no flags of scripts: whoever ends has to ask again
                refused(verb, match="is full")
        client.config_set("maxmemory", "0")
    assert [verb() for verb in ends][1:] == [Verdict.DONE] * 2
    assert store.get(None, "new") is None
    store.close()


def test_a_read_only_replica_says_so(another_redis):
    primary = another_redis()
    replica = another_redis(replicaof=f"127.0.0.1 {primary.port}")
    store = RedisStore.from_url(replica.url)
    refused(lambda: store.claim(ask()), match="read-only replica; give the address of its primary")
    store.close()


def test_a_server_that_is_not_there_was_told_nothing(another_redis):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    server.stop()
    refused(lambda: store.claim(ask()), match="cannot be reached; check that it runs")
    with server.client(retry=Retry(NoBackoff(), 1)) as client:
        # What became of the first of two tries is not in the error of the second.
        refused(lambda: RedisStore(client).claim(ask()), match="reached", happened=None)

    async def ask_there():
        await AsyncRedisStore.from_url(server.url).claim(ask())

    refused(lambda: asyncio.run(ask_there()), match="cannot be reached")


@pytest.fixture
def line(empty_redis):
    line = CutLine(empty_redis.port)
    yield line
    line.close()


def test_a_lost_reply_is_unknown_and_asked_for_again(line):
    store = RedisStore.from_url(line.url)
    store.claim(ask("first"))
    line.cut = True
    refused(lambda: store.claim(ask()), match="nobody knows", happened=None)
    record = store.get(None, "test-123")
    assert store.claim(ask()).record == record
    line.cut = True
    refused(lambda: store.settle(settle(record)), match="nobody knows", happened=None)
    assert store.settle(settle(record)) is Verdict.DONE
    store.close()


async def test_a_lost_reply_to_a_coroutine_is_unknown_too(line):
    store = AsyncRedisStore.from_url(line.url)
    await store.claim(ask("first"))
    line.cut = True
    with pytest.raises(StoreError) as told:
        await store.claim(ask())
    assert told.value.happened is None
    assert isinstance(await store.claim(ask()), Granted)
    await store.aclose()


def test_a_server_that_dies_before_it_answers_leaves_it_open(another_redis):
    server = another_redis()
    line = CutLine(server.port)
    store = RedisStore.from_url(line.url)
    store.claim(ask("first"))
    line.cut, line.instead = True, server.kill
    refused(lambda: store.claim(ask()), match="nobody knows", happened=None)
    server.start()
    assert isinstance(store.claim(ask()), Granted)
    store.close()
    line.close()


def test_a_server_that_does_not_answer_in_time_leaves_it_open(another_redis):
    server = another_redis()
    store = RedisStore.from_url(f"{server.url}?socket_timeout=0.1")
    patiently(store.claim, ask("first"))
    with standing_still(server):
        refused(lambda: store.claim(ask()), match="failed", happened=None)
    store.close()


def test_a_wrong_or_missing_password_is_a_setting_to_correct(another_redis):
    server = another_redis(requirepass="right")
    place = f"127.0.0.1:{server.port}/0"
    with pytest.raises(ConfigurationError, match="wants a password; put it into the URL"):
        RedisStore.from_url(f"redis://{place}").claim(ask())
    with pytest.raises(ConfigurationError, match="refused the user name or the password") as told:
        RedisStore.from_url(f"redis://:secret@{place}").claim(ask())
    assert "secret" not in str(told.value)
    store = RedisStore.from_url(f"redis://:right@{place}")
    assert isinstance(store.claim(ask()), Granted)
    assert isinstance(asyncio.run(store.as_async().claim(ask())), Granted)
    store.close()


def test_a_user_who_may_not_is_told_what_is_missing(empty_redis, client):
    client.acl_setuser("low", enabled=True, passwords=["+pw"], keys=["*"], categories=["+@read"])
    store = RedisStore.from_url(f"redis://low:pw@127.0.0.1:{empty_redis.port}/0")
    with pytest.raises(ConfigurationError, match="grant @scripting"):
        store.claim(ask())
    store.close()
    client.acl_deluser("low")


def test_a_key_of_somebody_else_is_left_alone(store, client):
    client.set("idempotency:test-123", "mine")
    refused(lambda: store.claim(ask()), match="choose another prefix")
    assert client.get("idempotency:test-123") == b"mine"


@pytest.mark.parametrize("url", ["redis://host:port", "redis://host/?db=x"])
def test_a_url_that_cannot_be_read_is_refused(url):
    with pytest.raises(ConfigurationError):
        open_store(url).claim(ask())
    with pytest.raises(ConfigurationError, match="more than one way"):
        AsyncRedisStore.from_url("redis://host:port")


async def test_a_scan_is_told_of_trouble_as_any_verb_is(another_redis):
    server = another_redis()
    store = RedisStore.from_url(server.url)
    other = store.as_async()
    store.claim(ask())
    await other.scan(Scan())
    with server.client() as client:  # whoever cannot read a record cannot tell of it
        client.acl_setuser("default", categories=["-@scripting"])
        with pytest.raises(ConfigurationError, match="grant @scripting"):
            store.scan(Scan())
        with pytest.raises(ConfigurationError, match="grant @scripting"):
            await other.scan(Scan())
    server.kill()
    refused(lambda: store.scan(Scan()), match="cannot be reached")
    with pytest.raises(StoreError, match="Redis at"):
        await other.scan(Scan())
    for page in (store, other):  # between the names and their records
        page._names = _no_names if page is store else _no_names_async
    refused(lambda: store.scan(Scan()), match="cannot be reached")
    with pytest.raises(StoreError, match="cannot be reached"):
        await other.scan(Scan())
    store.close()
    await other.aclose()


def _no_names():
    return [b"idempotency:test-123"]


async def _no_names_async():
    return [b"idempotency:test-123"]
