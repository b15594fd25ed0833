"""Stores keep the records. `open_store(url)` returns the one that a URL names."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.stores.base import AsyncStore, Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.url import safe_url

if TYPE_CHECKING:
    from oncekey.stores.django import DjangoStore
    from oncekey.stores.mysql.store import MySQLStore
    from oncekey.stores.mysql.store_async import AsyncMySQLStore
    from oncekey.stores.postgres.store import PostgresStore
    from oncekey.stores.postgres.store_async import AsyncPostgresStore
    from oncekey.stores.redis.store import RedisStore
    from oncekey.stores.redis.store_async import AsyncRedisStore
    from oncekey.stores.sqlite.store import SQLiteStore

__all__ = [
    "AsyncMySQLStore",
    "AsyncPostgresStore",
    "AsyncRedisStore",
    "AsyncStore",
    "DjangoStore",
    "MemoryStore",
    "MySQLStore",
    "PostgresStore",
    "RedisStore",
    "SQLiteStore",
    "Store",
    "open_store",
]


def open_store(url: str, *, prefix: str | None = None) -> Store:
    """Return the store that the URL names. It connects at its first use.

    `prefix` is put before the name of every record, in a Redis server that others share. Raise
    ConfigurationError if the URL is not valid.
    """
    try:
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    except ValueError:  # its text may quote the password
        msg = f"{safe_url(url)!r} is no URL; percent-encode [ as %5B and ] as %5D in a password"
        raise ConfigurationError(msg) from None
    opener = _SCHEMES.get(scheme)
    if opener is None:
        known = ", ".join(f"{name}://" for name in sorted(_SCHEMES))
        msg = f"a store URL starts with {known}, but this one is {safe_url(str(url))!r}"
        raise ConfigurationError(msg)
    return _open_redis(url, prefix) if opener is _open_redis else opener(url)


def _open_redis(url: str, prefix: str | None = None) -> Store:
    store: type[RedisStore] = __getattr__("RedisStore")
    return store.from_url(url) if prefix is None else store.from_url(url, prefix=prefix)


def _open_postgres(url: str) -> Store:
    store: type[PostgresStore] = __getattr__("PostgresStore")
    return store(url)


def _open_mysql(url: str) -> Store:
    store: type[MySQLStore] = __getattr__("MySQLStore")
    return store(url)


def _open_memory(url: str) -> Store:
    if url not in ("memory://", "memory:"):
        msg = f"a memory store has no name or options; write memory:// instead of {safe_url(url)!r}"
        raise ConfigurationError(msg)
    return MemoryStore()


def _open_sqlite(url: str) -> Store:
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path:
        msg = (
            f"write sqlite:///name.db for a file in this folder, or sqlite:////full/path.db "
            f"with four slashes, instead of {safe_url(url)!r}"
        )
        raise ConfigurationError(msg)
    if parts.fragment:
        msg = f"write a # in the name of a file as %23, instead of {safe_url(url)!r}"
        raise ConfigurationError(msg)
    options: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = set(options) - {"synchronous", "busy_timeout", "mode"}
    if unknown:
        names = ", ".join(sorted(unknown))
        said = safe_url(url)
        msg = f"{said!r} has unknown options ({names}); it takes synchronous, busy_timeout and mode"
        raise ConfigurationError(msg)
    if "synchronous" in options:
        options["synchronous"] = options["synchronous"].upper()
    if "mode" in options:
        try:
            options["mode"] = int(options["mode"], 8)
        except ValueError:
            msg = f"mode is octal, as in ?mode=0660, but it is {options['mode']!r}"
            raise ConfigurationError(msg) from None
    store: type[SQLiteStore] = __getattr__("SQLiteStore")
    return store(path, **options)


def _open_django(url: str) -> Store:
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query:
        msg = f"write django://alias for a database of Django, instead of {safe_url(url)!r}"
        raise ConfigurationError(msg)
    store: Store = __getattr__("DjangoStore")(parts.netloc or "default")
    return store


_SCHEMES: dict[str, Callable[[str], Store]] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
    "redis": _open_redis,
    "rediss": _open_redis,
    "unix": _open_redis,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "mysql": _open_mysql,
    "mariadb": _open_mysql,
    "django": _open_django,
}

# Stores that are imported when they are used: the module, and the extra that it needs, if any.
_LAZY = {
    "SQLiteStore": ("sqlite.store", ""),
    "RedisStore": ("redis.store", "redis"),
    "AsyncRedisStore": ("redis.store_async", "redis"),
    "MySQLStore": ("mysql.store", "mysql"),
    "AsyncMySQLStore": ("mysql.store_async", "mysql"),
    "DjangoStore": ("django", "django"),
    "PostgresStore": ("postgres.store", "postgres"),
    "AsyncPostgresStore": ("postgres.store_async", "postgres"),
}


def __getattr__(name: str) -> Any:
    """Import a store when it is first used, and the driver that it needs."""
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, extra = _LAZY[name]
    with needing(extra, name) if extra else nullcontext():
        return getattr(import_module(f"oncekey.stores.{module}"), name)
