"""Stores: where records are kept. `open_store(url)` opens the one that a URL names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from oncekey.errors import ConfigurationError
from oncekey.stores.base import AsyncStore, Store
from oncekey.stores.memory import MemoryStore
from oncekey.stores.sqlite import SQLiteStore

__all__ = ["AsyncStore", "MemoryStore", "SQLiteStore", "Store", "open_store"]


def open_store(url: str) -> Store:
    """The store that the URL names; nothing is opened before its first use."""
    try:
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    except ValueError as error:
        msg = f"{url!r} is no URL: {error}"
        raise ConfigurationError(msg) from None
    opener = _SCHEMES.get(scheme)
    if opener is None:
        known = ", ".join(f"{name}://" for name in sorted(_SCHEMES))
        msg = f"a store URL starts with {known}, but this one starts with {scheme or url!r}"
        raise ConfigurationError(msg)
    return opener(url)


def _open_memory(url: str) -> Store:
    if url not in ("memory://", "memory:"):
        msg = f"a memory store has no name or options; write memory:// instead of {url!r}"
        raise ConfigurationError(msg)
    return MemoryStore()


def _open_sqlite(url: str) -> Store:
    parts = urlsplit(url)
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path:
        msg = (
            f"write sqlite:///name.db for a file in this folder, or sqlite:////full/path.db "
            f"with four slashes, instead of {url!r}"
        )
        raise ConfigurationError(msg)
    options: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = set(options) - {"synchronous", "busy_timeout"}
    if unknown:
        names = ", ".join(sorted(unknown))
        msg = f"{url!r} has unknown options ({names}); it takes synchronous and busy_timeout"
        raise ConfigurationError(msg)
    if "synchronous" in options:
        options["synchronous"] = options["synchronous"].upper()
    return SQLiteStore(path, **options)


_SCHEMES: dict[str, Callable[[str], Store]] = {"memory": _open_memory, "sqlite": _open_sqlite}
