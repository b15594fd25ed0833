"""Records in the memory of this process: for tests, for single processes, and as a reference.

The cost of a verb does not depend on the number of records: the machine works on one record, and a
heap gives the next one that expires.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from operator import add
from typing import TypeVar

from oncekey.compat import renew_after_fork
from oncekey.core import machine
from oncekey.core.audit import KEPT
from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Request,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.stores.activity import Activity, Counts, activity_of, places_at
from oncekey.stores.adapters import Inline

Place = tuple[str, str]
R = TypeVar("R", bound=Request)
A = TypeVar("A")


def steady_clock() -> Callable[[], int]:
    """Return a clock in microseconds since the epoch. It ignores jumps of the wall clock."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset) // 1000


class MemoryStore:
    """A store that lives as long as the process. A forked child starts with a copy."""

    remote = False
    sends_once = True

    def __init__(self, *, clock: Callable[[], int] | None = None) -> None:
        """Start empty. `clock` returns microseconds, for tests that control the time."""
        self.clock = clock or steady_clock()
        self._lock = threading.Lock()
        self._records: dict[Place, Record] = {}
        self._expiry: list[tuple[int, Place]] = []
        self._order: list[Place] | None = None
        self._audit: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._activity: dict[int, tuple[int, int, int, int, int, int]] = {}
        renew_after_fork(self)

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not."""
        return self._apply(machine.claim, ask)

    def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        return self._apply(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        return self._apply(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        return self._apply(machine.settle, ask)

    def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        return self._apply(machine.release, ask)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        return self._apply(machine.resolve, ask, ask.audit)

    def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        return self._apply(machine.forget, ask, ask.audit)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        record = self._records.get((scope or "", key))
        return None if record is None or machine.expired(record, self.clock()) else record

    def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        with self._lock:
            now = self.clock()
            if self._order is None:
                self._order = sorted(self._records)
            start = 0 if ask.after is None else bisect_right(self._order, ask.after)
            found: list[Record] = []
            for place in self._order[start:]:
                record = self._records.get(place)
                if record is None or machine.expired(record, now) or not _wanted(record, ask):
                    continue
                if len(found) == ask.limit:
                    last = found[-1]
                    return Page(found, (last.scope or "", last.key))
                found.append(record)
            return Page(found, None)

    def purge(self, grace: int, limit: int, /) -> int:
        """Remove at most `limit` records that expired `grace` microseconds ago. Return how many."""
        purged = 0
        with self._lock:
            now = self.clock()
            while purged < limit and self._expiry and self._expiry[0][0] <= now - grace:
                _, place = heappop(self._expiry)
                record = self._records.get(place)
                # The entry is out of date if the record's expiry has changed: then there is another
                # one.
                if record is not None and machine.purgeable(record, now, grace):
                    self._remove(place)
                    purged += 1
        return purged

    def restore(self, record: Record, /) -> bool:
        """Keep a record of another store, unless there is one."""
        place = (record.scope or "", record.key)
        with self._lock:
            now, before = self.clock(), self._records.get(place)
            if machine.expired(record, now) or (before and not machine.expired(before, now)):
                return False
            self._put(place, before, record)
            return True

    def audit(self, entry: bytes, /) -> None:
        """Add an entry to the audit trail."""
        self._audit.appendleft((self.clock(), entry))

    def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries of the audit trail, each with its time."""
        return list(islice(self._audit, limit))

    def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of that moment."""
        with self._lock:
            now = self.clock()
            for place, width, at in places_at(now - ago, now):
                _, before, *kept = self._activity.get(place, (width, 0, 0, 0, 0, 0))
                if before <= at:
                    kept = kept if before == at else [0, 0, 0, 0]
                    new, duplicates, held, errors = map(add, kept, counts)
                    self._activity[place] = (width, at, new, duplicates, held, errors)

    def activity(self) -> Activity:
        """Return the sums that are kept."""
        with self._lock:
            return activity_of(self._activity.values(), self.clock())

    def close(self) -> None:
        """Do nothing: there are no connections, and the records stay."""

    def as_async(self) -> Inline:
        """Return the store for coroutines. It does not block, so it needs no thread."""
        return Inline(self)

    def after_fork(self) -> None:
        """Replace the lock. The records are the child's own copy."""
        self._lock = threading.Lock()

    def _apply(
        self,
        transition: Callable[[Record | None, R, int], tuple[Record | None, A]],
        ask: R,
        audit: bytes = b"",
    ) -> A:
        place = (ask.scope or "", ask.key)
        with self._lock:
            before = self._records.get(place)
            after, answer = transition(before, ask, self.clock())
            if after is not before:
                if after is None:
                    self._remove(place)
                else:
                    self._put(place, before, after)
                if audit:
                    self.audit(audit)
            return answer

    def _put(self, place: Place, before: Record | None, after: Record) -> None:
        self._records[place] = after
        if before is None and self._order is not None:
            insort(self._order, place)
        if after.expires and (before is None or before.expires != after.expires):
            heappush(self._expiry, (after.expires, place))

    def _remove(self, place: Place) -> None:
        self._records.pop(place, None)
        self._order = None


def _wanted(record: Record, ask: Scan) -> bool:
    if ask.status is not None and record.status != ask.status:
        return False
    return ask.any_scope or record.scope == ask.scope
