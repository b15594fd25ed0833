"""Stores that are full: so many records, made by the servers themselves where they can.

The newest fifty run, every thousandth is held, every fiftieth has failed, the others are completed.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import psycopg
import redis

from oncekey.core.requests import Claim, Settle
from oncekey.stores import MemoryStore, PostgresStore, SQLiteStore
from tests.patience import PATIENCE

SCOPE: Final = "billing"
_BATCH: Final = 20_000
_STATUS: Final = """
    CASE WHEN n > {count} - 50 THEN 'running' WHEN n % 1000 = 7 THEN 'held'
         WHEN n % 50 = 0 THEN 'failed' ELSE 'completed' END
"""
# Named, so that a column that a migration adds takes its default.
_COLUMNS: Final = """
    scope, key, status, fingerprint, token, nonce, attempt, lease_end, result, error, noted,
    revision, uncertain, label, reference, created, started, updated, finished, expires, version,
    due
"""
_SQLITE: Final = """
    WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}),
    made AS (
        SELECT n, {status} AS status, {now} - ({count} - n) * 1000 AS created FROM numbers
    )
    INSERT INTO oncekey_records ({columns})
    SELECT 'billing', 'charge:' || (n * 7919 % {count}), status, '1:' || hex(zeroblob(32)), created,
        'nonce-of-22-characters', 1, created + 300000000,
        CASE status WHEN 'completed' THEN x'81a26964a3706179' END, NULL, x'', 0, 0, 'charge', '',
        created, created, created, created, CASE status WHEN 'held' THEN 0 ELSE {far} END, 1,
        CASE status WHEN 'held' THEN 0 ELSE {far} END
    FROM made
"""
_POSTGRES: Final = """
    INSERT INTO oncekey_records ({columns})
    SELECT 'billing', 'charge:' || (n::bigint * 7919 % {count}), status, '1:' || repeat('0', 64),
        created, 'nonce-of-22-characters', 1, created + 300000000,
        CASE status WHEN 'completed' THEN '\\x81a26964a3706179'::bytea END, NULL, '', 0, false,
        'charge', '', created, created, created, created,
        CASE status WHEN 'held' THEN 0 ELSE {far} END, 1,
        CASE status WHEN 'held' THEN 0 ELSE {far} END
    FROM (
        SELECT n, {status} AS status, oncekey_now_v1() - ({count} - n) * 1000 AS created
        FROM generate_series(1::bigint, {count}) AS n
    ) made
"""
_LUA: Final = """
    local clock = redis.call('TIME')
    local now, count = clock[1] * 1000000 + clock[2], tonumber(ARGV[3])
    for n = ARGV[1], ARGV[2] do
      local status = n > count - 50 and 0 or n % 1000 == 7 and 4 or n % 50 == 0 and 2 or 1
      local created = now - (count - n) * 1000
      local ended, done = status ~= 0 and created or 0, status == 1 and 1 or 0
      local expires = status ~= 4 and created + 864000000000 or 0
      local head = struct.pack('>c4BBBBBBBI4I8I8I8I8I8I8I8c8I2I2I2I2I2I4I4', 'once', 1, status, 0,
        1, done, 0, 0, 1, created, created, created, created, created + 300000000, ended, expires,
        '\\0\\0\\0\\0\\0\\0\\0\\0', 22, 66, 6, 0, 0, 0, 0)
      local name = 'idempotency:billing/charge:' .. string.format('%d', n * 7919 % count)
      redis.call('SET', name, head .. 'nonce-of-22-characters' .. '1:' .. string.rep('0', 64)
        .. 'charge' .. (done == 1 and '\\129\\162id\\163pay' or ''))
    end
"""
_FAR: Final = 2**53
_DAYS: Final = 10 * 86_400_000_000
_EXPIRE: Final = """
    for n = ARGV[1], ARGV[2] do
      redis.call('PEXPIRE', 'idempotency:billing/charge:' .. string.format('%d', n), ARGV[3])
    end
"""


def key_of(number: int) -> str:
    """One of the keys."""
    return f"charge:{number}"


def fill_sqlite(path: Path, count: int, now: int) -> SQLiteStore:
    """A file with so many records."""
    store = SQLiteStore(path)
    store.get(None, "the file is made")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(_filled(_SQLITE, count, now=now))
    return store


def fill_postgres(url: str, count: int) -> PostgresStore:
    """A database with so many records, vacuumed as autovacuum would have done it."""
    store = PostgresStore(url)
    store.get(None, "the schema is made")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_filled(_POSTGRES, count).encode())
        connection.execute("VACUUM ANALYZE oncekey_records")
    return store


def _filled(statement: str, count: int, **values: int) -> str:
    """Return the statement that makes so many records."""
    status = _STATUS.format(count=count)
    return statement.format(columns=_COLUMNS, count=count, status=status, far=_FAR, **values)


def fill_redis(client: Any, count: int) -> None:
    """A server with so many records, in steps that leave it time for others."""
    script = client.register_script(_LUA)
    for first in range(1, count + 1, _BATCH):
        script(args=[first, min(first + _BATCH - 1, count), count], client=client)


# Settled records that live for days, as callers leave them


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
