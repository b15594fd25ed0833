"""The Redis store in both colours, on real servers, passes the suite that every store passes.

On a redis-server, on a Valkey, and on a cluster of three nodes.
"""

import asyncio

import pytest
import redis

from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.testing import AsyncStoreConformance, StoreConformance
from oncekey.testing.conformance.base import OnRunner
from tests.heavy import HEAVY
from tests.servers.redis_fixtures import (
    empty_cluster,
    empty_redis,
    empty_valkey,
    redis_cluster,
    redis_server,
    valkey_server,
)
from tests.stores.conformance.real_time import OnRealTime
from tests.stores.conformance.redis_time import HELD, MovedTime, moved

__all__ = [
    "empty_cluster",
    "empty_redis",
    "empty_valkey",
    "redis_cluster",
    "redis_server",
    "valkey_server",
]


class OnMovedTime:
    """Time stands still, so every rule is met at its very microsecond."""

    purges = False

    @pytest.fixture
    def clock(self, empty_redis):
        with empty_redis.client() as client:
            clock = MovedTime(client)
            yield clock
            clock.check_held()

    @pytest.fixture
    def scripts(self, empty_redis):
        with empty_redis.client() as client:
            return moved(client.info("server"))


@pytest.mark.row("J4")
class TestRedis(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, empty_redis, clock, scripts):
        store = RedisStore.from_url(empty_redis.url)
        store._scripts, store._held = scripts, HELD
        return store


@pytest.mark.row("J4")
class TestAsyncRedis(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, empty_redis, clock, scripts):
        store = AsyncRedisStore.from_url(empty_redis.url)
        store._scripts, store._held = scripts, HELD
        return store


class OnItsOwnTime(OnRealTime):
    """The server's clock, and its own hand that removes what expired."""

    purges = False


class TestRedisOnItsOwnTime(OnItsOwnTime):
    @pytest.fixture
    def store(self, empty_redis):
        with empty_redis.client(decode_responses=True) as client:
            yield RedisStore(client)


class TestAsyncRedisOnItsOwnTime(OnItsOwnTime):
    @pytest.fixture
    def store(self, empty_redis):
        with asyncio.Runner() as runner:
            store = OnRunner(RedisStore.from_url(empty_redis.url).as_async(), runner)
            yield store
            store.close()


# Valkey


class OnValkey:
    @pytest.fixture
    def empty_redis(self, empty_valkey):
        return empty_valkey


class TestValkeyOnItsOwnTime(OnValkey, TestRedisOnItsOwnTime):
    pass


class TestAsyncValkeyOnItsOwnTime(OnValkey, TestAsyncRedisOnItsOwnTime):
    pass


# A cluster


class OnCluster:
    """All records of a test are on one node, beside the clock; the two colours use two nodes."""

    purges = False
    tag = ""

    @pytest.fixture
    def client(self, empty_cluster):
        with redis.RedisCluster(**empty_cluster.address) as client:
            yield client

    @pytest.fixture
    def clock(self, client):
        return MovedTime(client, self.tag)

    @pytest.fixture
    def scripts(self, empty_cluster):
        with empty_cluster.nodes[0].client() as node:
            return moved(node.info("server"), self.tag)


class SuiteOnCluster(OnCluster, StoreConformance):
    tag = "{a}"

    @pytest.fixture
    def store(self, client, clock, scripts):
        store = RedisStore(client, prefix=f"{self.tag}idempotency:")
        store._scripts = scripts
        return store


class AsyncSuiteOnCluster(OnCluster, AsyncStoreConformance):
    """On threads: redis-py's own coroutines for a cluster break when many connect at once."""

    tag = "{c}"

    @pytest.fixture
    def store(self, client, clock, scripts):
        store = RedisStore(client, prefix=f"{self.tag}idempotency:")
        store._scripts = scripts
        return store.as_async()

    def test_the_two_colours_are_on_two_nodes(self, client):
        tags = [SuiteOnCluster.tag, self.tag]
        assert len({client.get_node_from_key(tag).port for tag in tags}) == 2


if HEAVY:  # minutes, in which the same scripts do the same elsewhere

    class TestValkey(OnValkey, TestRedis):
        pass

    class TestAsyncValkey(OnValkey, TestAsyncRedis):
        pass

    class TestCluster(SuiteOnCluster):
        pass

    class TestAsyncCluster(AsyncSuiteOnCluster):
        pass


class TestClusterOnItsOwnTime(OnCluster, OnItsOwnTime):
    """Without a tag: each record is on the node of its own slot."""

    @pytest.fixture
    def store(self, client):
        return RedisStore(client)
