"""The Redis store in both colours, on a real server, passes the suite that every store passes."""

from typing import Any

import pytest

from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.testing import AsyncStoreConformance, StoreConformance
from tests.conformance.redis_time import MovedTime, RealTime, moved
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]


class OnMovedTime:
    """Time stands still, so every rule is met at its very microsecond."""

    purges = False

    @pytest.fixture
    def clock(self, empty_redis):
        clock = MovedTime(empty_redis)
        yield clock
        clock.close()

    @pytest.fixture
    def facts(self, empty_redis):
        with empty_redis.client() as client:
            return client.info("server")


class TestRedis(OnMovedTime, StoreConformance):
    @pytest.fixture
    def store(self, empty_redis, clock, facts):
        store = RedisStore.from_url(empty_redis.url)
        store._scripts = moved(facts)
        return store


class TestAsyncRedis(OnMovedTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, empty_redis, clock, facts):
        store = AsyncRedisStore.from_url(empty_redis.url)
        store._scripts = moved(facts)
        return store


class OnRealTime:
    """The server's own clock, and its own hand that removes what expired."""

    purges = False
    lease = 450_000
    ttl = 600_000
    blur = 145_000

    # Its comparisons need a time that stands still between two questions; it has one above.
    test_it_does_what_the_machine_does: Any = None

    @pytest.fixture
    def clock(self, empty_redis):
        clock = RealTime(empty_redis)
        yield clock
        clock.close()

    @pytest.fixture
    def tick(self, clock):
        return clock.wait


class TestRedisOnItsOwnTime(OnRealTime, StoreConformance):
    @pytest.fixture
    def store(self, empty_redis):
        with empty_redis.client(decode_responses=True) as client:
            yield RedisStore(client)


class TestAsyncRedisOnItsOwnTime(OnRealTime, AsyncStoreConformance):
    @pytest.fixture
    def store(self, empty_redis):
        return RedisStore.from_url(empty_redis.url).as_async()
