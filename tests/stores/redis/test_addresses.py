"""The ways to a Redis: a socket, TLS, a user with a password, a Sentinel. In both colours."""

import asyncio
import inspect
from contextlib import suppress

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

from oncekey import Once
from oncekey.core.requests import Busy, Granted, Replay, Scan, Verdict
from oncekey.errors import ConfigurationError, StoreError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.adapters import Threaded
from tests.patience import PATIENCE, until_async
from tests.servers.redis_asks import ask, settle
from tests.servers.redis_fixtures import another_redis, empty_redis, redis_server
from tests.servers.redis_sentinel import NAME, Watched
from tests.servers.redis_tls import Terminator, make_certificate

__all__ = ["another_redis", "empty_redis", "redis_server"]


def protects(url):
    """A store at the URL does what it should, in both colours."""
    store = RedisStore.from_url(url)
    record = store.claim(ask()).record
    assert store.settle(settle(record)) is Verdict.DONE
    assert [one.key for one in store.scan(Scan()).records] == ["test-123"]

    async def ask_too(other):
        assert isinstance(await other.claim(ask(nonce="b")), Replay)
        record = (await other.claim(ask("other"))).record
        await other.watch(None, "other", record.token, 0.01)
        assert await other.settle(settle(record)) is Verdict.DONE
        await other.aclose()

    asyncio.run(ask_too(store.as_async()))
    second = store.claim(ask("second")).record
    store.watch(None, "second", second.token, 0.01)
    asyncio.run(Once(url).run_async("whole", _nothing))
    store.close()


async def _nothing():
    return None


def test_a_socket(another_redis, tmp_path):
    path = tmp_path / "redis.sock"
    another_redis(unixsocket=str(path))
    protects(f"unix://{path}")
    path.unlink()
    with pytest.raises(StoreError, match="cannot be reached") as told:
        RedisStore.from_url(f"unix://{path}").claim(ask())
    assert told.value.happened is False


@pytest.fixture
def secure(empty_redis, tmp_path):
    authority, certificate = make_certificate(tmp_path)
    terminator = Terminator(empty_redis.port, certificate)
    yield f"rediss://localhost:{terminator.port}/0", authority
    terminator.close()


def test_tls(secure):
    url, authority = secure
    protects(f"{url}?ssl_ca_certs={authority}")
    with pytest.raises(StoreError, match="cannot be reached") as told:
        RedisStore.from_url(url).claim(ask())
    assert told.value.happened is False


def test_a_user_with_no_more_rights_than_the_page_names(empty_redis):
    with empty_redis.client() as client:
        client.execute_command(
            *("ACL", "SETUSER", "shop", "on", ">p w/?", "resetchannels", "&idempotency:*"),
            *("~idempotency:*", "+@scripting", "+@string", "+@keyspace", "+@read", "+@write"),
            *("+@connection", "+time", "+info", "+subscribe", "+unsubscribe", "+publish"),
        )
    place = f"127.0.0.1:{empty_redis.port}/0"
    protects(f"redis://shop:p%20w%2F%3F@{place}")
    with pytest.raises(ConfigurationError, match="refused the user name or the password"):
        RedisStore.from_url(f"redis://shop:wrong@{place}").claim(ask())
    with empty_redis.client() as client:
        client.acl_deluser("shop")


# Sentinel


@pytest.fixture
def watched(tmp_path):
    servers = Watched(tmp_path)
    yield servers
    servers.stop()


async def found(claim, key="test-123"):
    """The answer as soon as the client has found the new primary, where it may look at the old."""

    async def answered():
        with suppress(StoreError):
            answer = claim(ask(key, nonce="b"))
            return await answer if inspect.isawaitable(answer) else answer

    return await until_async(answered)


def test_what_a_replica_had_is_found_after_a_fail_over(watched):
    client = Sentinel([watched.address]).master_for(NAME, redis.Redis, socket_timeout=PATIENCE)
    store = RedisStore(client, wait=(1, PATIENCE / 2))
    record = store.claim(ask()).record
    store.watch(None, "test-123", record.token, 60.0)  # a nap
    assert isinstance(store.as_async(), Threaded)
    with pytest.raises(StoreError, match=f"{NAME} of Sentinel reached 1 of 2 replicas"):
        RedisStore(client, wait=(2, "5ms")).claim(ask("other"))

    async def before(other):
        assert isinstance(await other.claim(ask("async")), Granted)
        assert isinstance(await other.claim(ask(nonce="b")), Busy)

    async def coroutines():
        sentinel = AsyncSentinel([watched.address])
        own = sentinel.master_for(NAME, redis.asyncio.Redis, socket_timeout=PATIENCE)
        await before(AsyncRedisStore(own, wait=(1, PATIENCE / 2)))
        await asyncio.to_thread(watched.fail_over)
        assert isinstance(await found(AsyncRedisStore(own).claim, "async"), Busy)
        await own.aclose(close_connection_pool=True)
        for one in sentinel.sentinels:
            await one.aclose()

    asyncio.run(coroutines())
    later = RedisStore(client)
    assert isinstance(asyncio.run(found(later.claim)), Busy)
    assert later.settle(settle(record)) is Verdict.DONE
    with pytest.raises(StoreError, match="reached 0 of 1 replicas"):
        RedisStore(client, wait=(1, "5ms")).claim(ask("new"))
    client.close()


@pytest.mark.parametrize("kind", [RedisStore, AsyncRedisStore])
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("shop", "the database is 'shop', which is no number"),
        ("1/2", "the database is '1/2'"),
        ("0?nosuch=1", "nosuch"),
    ],
)
def test_an_address_that_cannot_be_meant_so_is_refused_at_once(kind, address, words):
    """redis-py takes them for the databases 0 and 12, and fails when it connects."""
    with pytest.raises(ConfigurationError, match=words) as told:
        kind.from_url(f"redis://:secret@localhost:6379/{address}")
    assert "secret" not in str(told.value)


def test_a_database_that_the_server_does_not_have_is_named(empty_redis):
    store = RedisStore.from_url(f"redis://127.0.0.1:{empty_redis.port}/999")
    with pytest.raises(ConfigurationError, match="does not have that database"):
        store.claim(ask())
    store.close()
