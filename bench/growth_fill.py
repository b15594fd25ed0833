"""Full stores: settled records that live for days, as callers leave them."""

from __future__ import annotations

from contextlib import closing
from typing import Final

import redis

from bench.ops_fill import SCOPE, fill_redis, key_of
from oncekey.core.requests import Claim, Settle
from oncekey.stores import MemoryStore
from tests.patience import PATIENCE

_DAYS: Final = 10 * 86_400_000_000
_BATCH: Final = 20_000
_EXPIRE: Final = """
    for n = ARGV[1], ARGV[2] do
      redis.call('PEXPIRE', 'idempotency:billing/charge:' .. string.format('%d', n), ARGV[3])
    end
"""


def fill_memory(count: int) -> MemoryStore:
    """A store with so many, through its own verbs: nobody else can put them there."""
    store = MemoryStore()
    for number in range(count):
        ask = Claim(
            SCOPE,
            key_of(number),
            nonce="n",
            fingerprint=None,
            lease=_DAYS,
            ttl=_DAYS,
            label="charge",
        )
        token = store.claim(ask).record.token
        store.settle(
            Settle(
                SCOPE,
                ask.key,
                token=token,
                nonce="n",
                status="completed",
                result=b"paid",
                error=None,
                ttl=_DAYS,
            )
        )
    return store


def fill_redis_with_ttl(url: str, count: int) -> None:
    """A database with so many, each of which the server has to expire one day."""
    with closing(redis.Redis.from_url(url, socket_timeout=PATIENCE)) as client:
        fill_redis(client, count)
        expire = client.register_script(_EXPIRE)
        for first in range(0, count, _BATCH):
            expire(args=[first, min(first + _BATCH, count) - 1, _DAYS // 1000])
        assert client.info("keyspace")[f"db{client.connection_pool.connection_kwargs['db']}"][
            "expires"
        ]
