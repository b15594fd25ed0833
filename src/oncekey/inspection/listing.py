"""List, count and find the records of a store at a bounded cost.

A page and the counts take about as long in a store with many records as in one with a few. Stores
that keep an order by time are read newest first. Only blocking stores are supported.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from time import monotonic
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncekey.core.audit import KEPT, AuditEntry, decode_entry
from oncekey.core.record import Record
from oncekey.errors import UnreadableError
from oncekey.stores import browse
from oncekey.stores.activity import Activity
from oncekey.stores.base import Store, store_behind
from oncekey.stores.browse import RecordCounts, RecordPage, RecordQuery, ScopeAndKey, StoreSize

# By name, because each module imports the driver of its store.
_MODULES: Final = {
    "oncekey.stores.memory.MemoryStore": "oncekey.stores.memory_browse",
    "oncekey.stores.sqlite.store.SQLiteStore": "oncekey.stores.sqlite.browse",
    "oncekey.stores.postgres.store.PostgresStore": "oncekey.stores.postgres.browse",
    "oncekey.stores.mysql.store.MySQLStore": "oncekey.stores.mysql.browse",
    "oncekey.stores.redis.store.RedisStore": "oncekey.stores.redis.browse",
}


def list_records(store: Store, ask: RecordQuery) -> RecordPage:
    """Return one page of the living records. It may be short or empty without being the last."""
    page: RecordPage = _answer(store, "list_records", ask)
    return page


def fill_page(store: Store, ask: RecordQuery, seconds: float = 1.0) -> RecordPage:
    """Return a full page, reading as many pages as that takes, or less after `seconds`.

    A query by something that the store has no order for may have to read far.
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
    """Return how many living records there are.

    If there are many, estimate from a sample. `exact` counts them all, however long that takes.
    """
    told: RecordCounts = _answer(store, "count_records", exact=exact)
    return told


def measure(store: Store, total: int) -> StoreSize:
    """Return how much the records take, of which there are `total`, and how many are new."""
    told: StoreSize = _answer(store, "measure", total)
    return told


def time_of(store: Store) -> int:
    """Return the time of the store in microseconds, by which leases are judged."""
    return list_records(store, RecordQuery(limit=1)).now


def where(store: Store) -> str:
    """Return host and database, or the file, without user and password; empty if not known."""
    told: str = _answer(store, "where")
    return told


def read_activity(store: Store) -> Activity | None:
    """Return how many calls there were over time, or None if the store does not keep that."""
    activity = getattr(store, "activity", None)
    return None if activity is None else activity()


class Share(Struct, frozen=True):
    """How many records have this label or scope, in all and by status."""

    name: str | None
    """The label, which may be empty, or the scope, which may be None."""
    total: int
    by_status: dict[str, int]


class Breakdown(Struct, frozen=True):
    """The records by label and by scope, each with the largest share first."""

    labels: list[Share]
    scopes: list[Share]
    read: int
    """The number of records that were read."""
    whole: bool
    """Whether these were all."""
    newest_first: bool
    """Whether those that were read are the newest ones."""
    now: int


def break_down(store: Store, *, most: int, seconds: float) -> Breakdown:
    """Return the records by label and by scope, of at most so many and after so many seconds."""
    end = monotonic() + seconds
    seen: dict[ScopeAndKey, Record] = {}  # Redis may list a record twice
    ask = RecordQuery(limit=min(most, _PAGE))
    while True:
        page = list_records(store, ask)
        seen |= {(one.scope, one.key): one for one in page.records}
        if page.after is None or len(seen) >= most or monotonic() > end:
            break
        ask = replace(ask, after=page.after)
    return Breakdown(
        labels=_shares((record.label, record.status) for record in seen.values()),
        scopes=_shares((record.scope, record.status) for record in seen.values()),
        read=len(seen),
        whole=page.after is None,
        newest_first=page.newest_first,
        now=page.now,
    )


_PAGE: Final = 1000


def _shares(pairs: Iterable[tuple[str | None, str]]) -> list[Share]:
    counted: dict[str | None, dict[str, int]] = {}
    for name, status in pairs:
        by_status = counted.setdefault(name, {})
        by_status[status] = by_status.get(status, 0) + 1
    shares = [Share(name, sum(counts.values()), counts) for name, counts in counted.items()]
    return sorted(shares, key=lambda one: (-one.total, one.name or ""))


def count_due(store: Store, grace: int) -> int | None:
    """Return how many records a purge with this grace period may remove, a million at most.

    Return None if the store removes them by itself or cannot tell.
    """
    told: int | None = _answer(store, "count_due", grace)
    return told


def find_record(store: Store, scope: str | None, key: str) -> Record | None:
    """Return the living record with its result, or None if there is none.

    Read the record of a newer release as far as possible.
    """
    try:
        return store.get(scope, key)
    except UnreadableError:
        record: Record | None = _answer(store, "read_newer", scope, key)
        return record


def read_audit(store: Store, limit: int) -> list[AuditEntry] | None:
    """Return what was done by hand, the newest first, or None if the store keeps no audit trail."""
    audited = getattr(store, "audited", None)
    return None if audited is None else [decode_entry(*one) for one in audited(limit)]


def audit_of(store: Store, record: Record) -> list[AuditEntry]:
    """Return what was done to this record by hand since it was first claimed, the newest first.

    The last time that it was resolved stands in the record itself, which may outlive the trail.
    """
    found = [
        entry
        for entry in read_audit(store, KEPT) or ()
        if (entry.scope, entry.key) == (record.scope, record.key) and entry.at >= record.created
    ]
    kept = record.resolved
    if kept is None or any(_same_deed(kept, entry) for entry in found):
        return found
    return sorted([*found, kept], key=lambda entry: entry.at, reverse=True)


def _same_deed(one: AuditEntry, other: AuditEntry) -> bool:
    """Return whether both are about the same change: a store may take their times one by one."""
    return replace(one, at=other.at) == other and abs(one.at - other.at) < _TOGETHER


_TOGETHER: Final = 1_000_000


def _answer(store: Store, name: str, *values: Any, **settings: Any) -> Any:
    """Ask with the function for this kind of store, or the general one that uses only requests."""
    asked = store_behind(store)
    for kind in type(asked).__mro__:
        module = _MODULES.get(f"{kind.__module__}.{kind.__qualname__}")
        if module is not None:
            function = getattr(import_module(module), name, None) or getattr(browse, name)
            return function(asked, *values, **settings)
    return getattr(browse, name)(asked, *values, **settings)
