"""The PostgreSQL store through a real PgBouncer in session mode, in both colours."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing

import pytest

from oncekey import Once
from oncekey.stores import AsyncPostgresStore, PostgresStore
from oncekey.testing.conformance.base import OnRunner
from tests.stores.conformance.real_time import OnRealTime


class TestPostgresThroughPgBouncer(OnRealTime):
    @pytest.fixture
    def store(self, pooled_url):
        store = PostgresStore(pooled_url)
        yield store
        store.close()


class TestAsyncPostgresThroughPgBouncer(OnRealTime):
    @pytest.fixture
    def store(self, pooled_url):
        with asyncio.Runner() as runner:
            store = OnRunner(AsyncPostgresStore(pooled_url), runner)
            yield store
            store.close()


def test_threads_that_share_keys_run_each_once(pooled_url):
    ran = []
    with closing(Once(pooled_url, observers=())) as once, ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(lambda n: once.run(f"k{n % 10}", lambda: ran.append(n) or n % 10), range(80))
        )
    assert sorted(n % 10 for n in ran) == list(range(10))
    assert results == [n % 10 for n in range(80)]


async def test_tasks_that_share_keys_run_each_once(pooled_url):
    ran = []

    async def work(number):
        ran.append(number)
        return number

    async with aclosing(Once(pooled_url, observers=())) as once:
        calls = [once.run_async(f"k{n % 10}", work, n % 10) for n in range(80)]
        assert await asyncio.gather(*calls) == [n % 10 for n in range(80)]
    assert sorted(ran) == list(range(10))
