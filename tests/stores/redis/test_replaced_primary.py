"""A connection to a primary that may have been replaced is closed, so that the new one is found.

Redis does not close it, and whoever keeps it is refused for as long as the server lives. Sentinel
names the new primary only to those who connect.
"""

import asyncio

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncekey.core.requests import Granted
from oncekey.errors import StoreError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.testing.conformance.base import OnRunner
from tests.patience import until
from tests.servers.redis_asks import ask
from tests.servers.redis_fixtures import another_redis

__all__ = ["another_redis"]

ONCE = Retry(NoBackoff(), 0)
LATE = (1, "1ms")


@pytest.fixture
def runner():
    with asyncio.Runner() as runner:
        yield runner


FAST = pytest.mark.fast_path("lines and wires beside what redis-py does")


@pytest.fixture(
    params=[
        pytest.param("fast", marks=FAST),
        "slow",
        pytest.param("fast async", marks=FAST),
        "slow async",
    ]
)
def opened(request, runner):
    """Opens a store of each kind: with the connections of redis-py used directly, and by it."""
    closing = []

    def open_store(server, **options):
        fast = request.param.startswith("fast")
        if request.param.endswith("async"):
            client = redis.asyncio.Redis(port=server.port, retry=ONCE)
            closing.append(lambda: runner.run(client.aclose()))
            store = AsyncRedisStore(client, fast=fast, **options)
            closing.append(lambda: runner.run(store.aclose()))
            return OnRunner(store, runner)
        client = redis.Redis(port=server.port, retry=ONCE)
        closing.append(client.close)
        store = RedisStore(client, fast=fast, **options)
        closing.append(store.close)
        return store

    yield open_store
    while closing:
        closing.pop()()


def connected(client):
    """The connections of the server, without the one that asks."""
    return {one["id"] for one in client.client_list()} - {str(client.client_id())}


def is_left(client, store, before):
    """The store goes on, and on other connections."""
    assert isinstance(store.claim(ask("after", nonce="b")), Granted)
    until(lambda: not connected(client) & before)


TROUBLES = {
    "read-only replica": (
        lambda client: client.replicaof("127.0.0.1", "1"),
        lambda client: client.replicaof("NO", "ONE"),
    ),
    "too few replicas": (
        lambda client: client.config_set("min-replicas-to-write", 1),
        lambda client: client.config_set("min-replicas-to-write", 0),
    ),
}


@pytest.mark.parametrize("said", TROUBLES)
def test_a_primary_that_refuses_writes_is_left(another_redis, opened, said):
    server = another_redis()
    store = opened(server)
    trouble, mended = TROUBLES[said]
    with server.client() as client:
        store.claim(ask())
        before = connected(client)
        trouble(client)
        with pytest.raises(StoreError, match=said):
            store.claim(ask("other"))
        mended(client)
        is_left(client, store, before)


def test_whoever_reaches_no_replica_connects_again(another_redis, opened):
    server = another_redis()
    store = opened(server, wait=LATE)
    with server.client() as client:
        opened_until_now = []
        for key in ("one", "two", "three"):
            with pytest.raises(StoreError, match="reached 0 of 1 replicas"):
                store.claim(ask(key))
            opened_until_now.append(client.info("stats")["total_connections_received"])
    first, second, third = opened_until_now
    assert first < second < third
