"""Records that the benchmark puts into a store by itself are what the store would have written."""

import time
from collections import Counter
from contextlib import closing

import pytest
from msgspec.structs import replace

from bench.cases.full_stores import (
    SCOPE,
    fill_postgres,
    fill_redis,
    fill_redis_with_ttl,
    fill_sqlite,
    key_of,
)
from oncekey.core.record import Record
from oncekey.stores import RedisStore
from tests.servers.postgres_fixtures import postgres, postgres_url
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "postgres", "postgres_url", "redis_server"]

COUNT = 200
STATUSES = {"completed": 146, "running": 50, "failed": 3, "held": 1}
TIMES = ("token", "created", "started", "updated", "lease_end", "finished", "expires")


@pytest.fixture
def sqlite_store(tmp_path):
    with closing(fill_sqlite(tmp_path / "records.db", COUNT, time.time_ns() // 1000)) as store:
        yield store


@pytest.fixture
def postgres_store(postgres_url):
    with closing(fill_postgres(postgres_url, COUNT)) as store:
        yield store


@pytest.fixture
def redis_store(empty_redis):
    with empty_redis.client() as client:
        fill_redis(client, COUNT)
        yield RedisStore(client)


@pytest.fixture
def expiring_redis_store(empty_redis):
    fill_redis_with_ttl(empty_redis.url, COUNT)
    with empty_redis.client() as client:
        yield RedisStore(client)


@pytest.mark.parametrize(
    "name", ["sqlite_store", "postgres_store", "redis_store", "expiring_redis_store"]
)
def test_a_store_reads_every_record_that_it_was_filled_with(request, name):
    store = request.getfixturevalue(name)
    records = [store.get(SCOPE, key_of(number)) for number in range(COUNT)]
    assert Counter(record.status for record in records) == STATUSES
    for number, record in enumerate(records):
        timeless = replace(record, **dict.fromkeys(TIMES, 0))
        assert timeless == expected(number, record.status)
        assert bool(record.expires) == (record.status != "held")


def expected(number, status):
    return Record(
        SCOPE,
        key_of(number),
        status,
        "1:" + "0" * 64,
        nonce="nonce-of-22-characters",
        attempt=1,
        label="charge",
        result=b"\x81\xa2id\xa3pay" if status == "completed" else None,
        **dict.fromkeys(TIMES, 0),
    )
