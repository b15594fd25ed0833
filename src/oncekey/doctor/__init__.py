"""The doctor: examine the live settings of a store for those that lose records.

It only reads. A setting that it may not read becomes a warning; it does not guess.
"""

from __future__ import annotations

import asyncio
import inspect

from oncekey.doctor import sqlite
from oncekey.doctor.finding import Finding, Severity, fine, sorted_by_severity, warning
from oncekey.doctor.lifetimes import Expected, lifetimes
from oncekey.errors import ConfigurationError
from oncekey.policy import Duration
from oncekey.stores import AsyncStore, MemoryStore, SQLiteStore, Store
from oncekey.stores.base import store_behind

__all__ = ["Finding", "Severity", "examine", "examine_async"]


def examine(
    store: Store,
    *,
    ttl: Duration | None = None,
    retry_horizon: Duration | None = None,
    events: object | None = None,
) -> list[Finding]:
    """Examine the store and return the findings, the worst first. Change nothing.

    `retry_horizon` is how long after a call its duplicates may come, and `ttl` how long records
    answer them; `events` are the settings of a bus on the same server, `bus.settings`. Raise
    `StoreError` if the store does not answer, and `ConfigurationError` for an async store.
    """
    if inspect.iscoroutinefunction(getattr(store, "claim", None)):
        msg = f"{type(store).__name__} is for coroutines; use `await examine_async(store)`"
        raise ConfigurationError(msg)
    asked = Expected.of(ttl, retry_horizon, events)
    return sorted_by_severity([*_of_store(store, asked), *lifetimes(asked)])


async def examine_async(
    store: Store | AsyncStore,
    *,
    ttl: Duration | None = None,
    retry_horizon: Duration | None = None,
    events: object | None = None,
) -> list[Finding]:
    """Do the same for blocking and async stores. Examine a blocking one on a thread."""
    asked = Expected.of(ttl, retry_horizon, events)
    store = store_behind(store)
    blocking = getattr(store, "blocking", store)  # unwraps the adapter around a blocking store
    if not inspect.iscoroutinefunction(getattr(blocking, "claim", None)):
        found = await asyncio.to_thread(_of_store, blocking, asked)
    else:
        found = await _of_async_store(blocking, asked)
    return sorted_by_severity([*found, *lifetimes(asked)])


def _of_store(store: object, asked: Expected) -> list[Finding]:
    store = store_behind(store)
    if isinstance(store, MemoryStore):
        return [_in_memory()]
    if isinstance(store, SQLiteStore):
        return list(sqlite.findings(store.file, store.synchronous))
    if _is(store, "RedisStore"):
        from oncekey.doctor import redis

        return redis.of_store(store, asked)
    if _is(store, "PostgresStore"):
        from oncekey.doctor import postgres

        return postgres.of_store(store)
    if _is(store, "MySQLStore"):
        from oncekey.doctor import mysql

        return mysql.of_store(store)
    return [_unknown(store)]


async def _of_async_store(store: object, asked: Expected) -> list[Finding]:
    store = store_behind(store)
    if _is(store, "AsyncRedisStore"):
        from oncekey.doctor import redis

        return await redis.of_store_async(store, asked)
    if _is(store, "AsyncPostgresStore"):
        from oncekey.doctor import postgres

        return await postgres.of_store_async(store)
    if _is(store, "AsyncMySQLStore"):
        from oncekey.doctor import mysql

        return await mysql.of_store_async(store)
    return [_unknown(store)]


def _is(store: object, name: str) -> bool:
    """Return whether it is a store of this name or a subclass, without importing its driver."""
    return any(
        kind.__name__ == name and kind.__module__.startswith("oncekey.stores.")
        for kind in type(store).__mro__
    )


def _in_memory() -> Finding:
    meaning = "records live in this process alone: others do not see them, and its end forgets them"
    fix = "use sqlite:///, redis:// or postgresql:// for whatever must not happen twice"
    return warning("memory.process", meaning, "store=memory://", fix)


def _unknown(store: object) -> Finding:
    meaning = "nobody here knows what to ask this store"
    return fine("store.kind", meaning, f"store={type(store).__name__}")
