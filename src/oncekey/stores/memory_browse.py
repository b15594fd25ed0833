"""List and count the records in memory. Every page sorts all of them."""

from __future__ import annotations

from typing import Final

from oncekey.core.record import Record
from oncekey.core.requests import Scan
from oncekey.stores.browse import (
    NewestFirst,
    RecordCounts,
    RecordPage,
    RecordQuery,
    lapsed,
    newest_first_from,
    per_status,
    wanted,
    without_results,
)
from oncekey.stores.memory import MemoryStore

_ALL: Final = 2**31


def list_records(store: MemoryStore, ask: RecordQuery) -> RecordPage:
    """Return a page of records, newest first."""
    now, start = store.clock(), newest_first_from(ask.after)
    told: list[Record] = []
    after = here = NewestFirst(start.created)
    for record in sorted(_living(store), key=lambda one: one.created, reverse=True):
        if record.created > start.created:
            continue
        same = record.created == here.created
        here = NewestFirst(record.created, here.passed + 1 if same else 1)
        behind = here.created == start.created and here.passed <= start.passed
        if behind or not wanted(record, ask, now):
            continue
        if len(told) == ask.limit:
            return without_results(told, str(after), newest_first=True, now=now)
        told.append(record)
        after = here
    return without_results(told, None, newest_first=True, now=now)


def count_records(store: MemoryStore, *, exact: bool) -> RecordCounts:  # noqa: ARG001 - they always are
    """Count all records one by one."""
    seen: dict[str, int] = {}
    records = _living(store)
    now = store.clock()
    for record in records:
        seen[record.status] = seen.get(record.status, 0) + 1
    total = len(records)
    return RecordCounts(
        total=total,
        by_status=per_status(seen),
        lapsed=sum(lapsed(one, now) for one in records),
        exact=True,
        held_exact=True,
        held_since=min((one.updated for one in records if one.status == "held"), default=None),
        looked_at=total,
        now=now,
    )


def _living(store: MemoryStore) -> list[Record]:
    return store.scan(Scan(limit=_ALL)).records


def where(store: MemoryStore) -> str:  # noqa: ARG001 - there is one place
    """Return where the records are."""
    return "in this process"
