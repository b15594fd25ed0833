"""List and count the records of a store, at a bounded price.

However many records a store has, a page and the counts take about as long as with a few. A store
that can tell is read newest first. Only blocking stores are listed.
"""

from __future__ import annotations

from importlib import import_module
from time import monotonic
from typing import Any, Final

from msgspec.structs import replace

from oncekey.core.record import Record
from oncekey.errors import UnreadableError
from oncekey.stores import browse
from oncekey.stores.base import Store
from oncekey.stores.browse import RecordCounts, RecordPage, RecordQuery

# By name, because each imports the driver of its store.
_MODULES: Final = {
    "oncekey.stores.memory.MemoryStore": "oncekey.stores.memory_browse",
    "oncekey.stores.sqlite.store.SQLiteStore": "oncekey.stores.sqlite.browse",
    "oncekey.stores.postgres.store.PostgresStore": "oncekey.stores.postgres.browse",
    "oncekey.stores.redis.store.RedisStore": "oncekey.stores.redis.browse",
}


def list_records(store: Store, ask: RecordQuery) -> RecordPage:
    """One page of the living records. It may be short, or empty, and not the last."""
    page: RecordPage = _function(store, "list_records")(store, ask)
    return page


def fill_page(store: Store, ask: RecordQuery, seconds: float = 1.0) -> RecordPage:
    """A full page, put together from as many as that takes; less when the time is over.

    Who chooses by something that the store has no order for may have to look far.
    """
    end = monotonic() + seconds
    page = list_records(store, ask)
    while page.after is not None and len(page.records) < ask.limit and monotonic() < end:
        more = list_records(
            store, replace(ask, after=page.after, limit=ask.limit - len(page.records))
        )
        more.records[:0], more.sizes[:0] = page.records, page.sizes
        page = more
    return page


def count_records(store: Store, *, exact: bool = False) -> RecordCounts:
    """How many living records there are.

    Many are estimated from a few of them; `exact` counts them all, however long that takes.
    """
    told: RecordCounts = _function(store, "count_records")(store, exact=exact)
    return told


def count_due(store: Store, grace: int) -> int | None:
    """How many records a purge with this grace period may remove, a million at most.

    None where the store removes them by itself, or cannot tell.
    """
    told: int | None = _function(store, "count_due")(store, grace)
    return told


def find_record(store: Store, scope: str | None, key: str) -> Record | None:
    """The living record, result and all. One of a newer release is read as far as it can be."""
    try:
        return store.get(scope, key)
    except UnreadableError:
        record: Record | None = _function(store, "read_newer")(store, scope, key)
        return record


def _function(store: Store, name: str) -> Any:
    """Return the function of this kind of store, or the one that needs nothing but verbs."""
    for kind in type(store).__mro__:
        module = _MODULES.get(f"{kind.__module__}.{kind.__qualname__}")
        if module is not None:
            return getattr(import_module(module), name, None) or getattr(browse, name)
    return getattr(browse, name)
