"""Looking at many records: pages of them, and how many there are, at a bounded price.

However many records a store has, a page and the counts take about as long as with a few. A store
that can tell is read newest first. Only blocking stores are looked at.
"""

from __future__ import annotations

from importlib import import_module
from time import monotonic
from typing import Any, Final

from msgspec.structs import replace

from oncekey.core.record import Record
from oncekey.errors import UnreadableError
from oncekey.looking.ask import STATUSES, Counts, Look, Sight
from oncekey.stores.base import Store

__all__ = ["STATUSES", "Counts", "Look", "Sight", "counts", "due", "find", "gather", "look"]

# By name, because each imports the driver of its store.
_MODULES: Final = {
    "oncekey.stores.memory.MemoryStore": "memory",
    "oncekey.stores.sqlite.store.SQLiteStore": "sqlite",
    "oncekey.stores.postgres.store.PostgresStore": "postgres",
    "oncekey.stores.redis.store.RedisStore": "redis",
}


def look(store: Store, ask: Look) -> Sight:
    """One page of the living records. It may be short, or empty, and not the last."""
    sight: Sight = _way(store, "look")(store, ask)
    return sight


def gather(store: Store, ask: Look, seconds: float = 1.0) -> Sight:
    """A full page, put together from as many as that takes; less when the time is over.

    Who chooses by something that the store has no order for may have to look far.
    """
    end = monotonic() + seconds
    sight = look(store, ask)
    while sight.after is not None and len(sight.records) < ask.limit and monotonic() < end:
        more = look(store, replace(ask, after=sight.after, limit=ask.limit - len(sight.records)))
        more.records[:0], more.sizes[:0] = sight.records, sight.sizes
        sight = more
    return sight


def counts(store: Store, *, exact: bool = False) -> Counts:
    """How many living records there are.

    Many are estimated from a few of them; `exact` counts them all, however long that takes.
    """
    told: Counts = _way(store, "counts")(store, exact=exact)
    return told


def due(store: Store, grace: int) -> int | None:
    """How many records a purge with this grace period may remove, a million at most.

    None where the store removes them by itself, or cannot tell.
    """
    told: int | None = _way(store, "due")(store, grace)
    return told


def find(store: Store, scope: str | None, key: str) -> Record | None:
    """The living record, result and all. One of a newer release is read as far as it can be."""
    try:
        return store.get(scope, key)
    except UnreadableError:
        record: Record | None = _way(store, "read_newer")(store, scope, key)
        return record


def _way(store: Store, verb: str) -> Any:  # noqa: ANN401 - a function of one of the modules
    """How to look at this kind of store."""
    for kind in type(store).__mro__:
        name = _MODULES.get(f"{kind.__module__}.{kind.__qualname__}")
        if name is not None:
            return getattr(import_module(f"oncekey.looking.{name}"), verb)
    return getattr(import_module("oncekey.looking.scanning"), verb)
