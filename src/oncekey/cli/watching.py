"""What changes while somebody watches: one view after the other."""

from __future__ import annotations

from heapq import nlargest
from time import monotonic
from typing import Final

from msgspec import Struct

from oncekey import Record
from oncekey.core.record import Status
from oncekey.inspection.listing import count_records, fill_page, find_record, list_records
from oncekey.stores import Store
from oncekey.stores.browse import RecordCounts, RecordQuery

_WALK: Final = 0.2
"""Seconds that one view walks over a store that has no order of time."""
_PAGE: Final = 200

Place = tuple[str | None, str]


class View(Struct, kw_only=True):
    """One look: how many there are, the newest of them, and how many came since the last one."""

    counts: RecordCounts
    records: list[Record]
    new: int | None
    """How many were created since the view before; None where nobody knows."""
    complete: bool
    """False: there may be newer ones that were not come by yet."""


class Watch:
    """The newest records of a store, again and again."""

    def __init__(self, store: Store, status: Status | None) -> None:
        """Nothing is asked yet."""
        self._store = store
        self._status: Status | None = status
        self._seen: dict[Place, Record] = {}
        self._cursor: str | None = None
        self._walked = False
        self._newest = 0

    def view(self, rows: int) -> View:
        """How it is now, with at most so many records."""
        told = count_records(self._store)
        sight = fill_page(self._store, RecordQuery(status=self._status, limit=max(rows, 1)), _WALK)
        if not sight.newest_first:
            return View(counts=told, records=self._walk(rows), new=None, complete=self._walked)
        new = sum(record.created > self._newest for record in sight.records)
        known, self._newest = (
            self._newest,
            max([self._newest, *(record.created for record in sight.records)]),
        )
        return View(
            counts=told,
            records=sight.records[:rows],
            new=new if known and new < rows else None,
            complete=True,
        )

    def _walk(self, rows: int) -> list[Record]:
        """The newest of those that were come by so far, as they are now."""
        end = monotonic() + _WALK
        again = [find_record(self._store, *place) for place in self._seen]
        self._seen = {}
        self._keep([record for record in again if record is not None], rows)
        while monotonic() < end:
            ask = RecordQuery(status=self._status, after=self._cursor, limit=_PAGE)
            sight = list_records(self._store, ask)
            self._keep(sight.records, rows)
            self._cursor = sight.after
            if sight.after is None:
                self._walked = True
                break
        return sorted(self._seen.values(), key=lambda one: one.created, reverse=True)

    def _keep(self, records: list[Record], rows: int) -> None:
        fit = [one for one in records if self._status in (None, one.status)]
        self._seen |= {(one.scope, one.key): one for one in fit}
        kept = nlargest(rows, self._seen.values(), key=lambda one: one.created)
        self._seen = {(one.scope, one.key): one for one in kept}
