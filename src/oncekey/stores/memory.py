"""Records in this process's memory: for tests, for single processes, and as the model of a store.

The cost of a verb does not grow with the number of records: the machine does the work on one
record, and a heap knows which one expires next.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeVar

from oncekey.compat import renew_after_fork
from oncekey.core import machine
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
from oncekey.stores.adapters import Inline

Place = tuple[str, str]
R = TypeVar("R", bound=Request)
A = TypeVar("A")


def steady_clock() -> Callable[[], int]:
    """Microseconds since the epoch that never jump, whatever happens to the wall clock."""
    offset = time.time_ns() - time.monotonic_ns()
    return lambda: (time.monotonic_ns() + offset) // 1000


class MemoryStore:
    """A store that lives and dies with the process. A forked child starts with a copy."""

    remote = False

    def __init__(self, *, clock: Callable[[], int] | None = None) -> None:
        """Empty; `clock` gives microseconds, for tests that make time pass."""
        self._clock = clock or steady_clock()
        self._lock = threading.Lock()
        self._records: dict[Place, Record] = {}
        self._expiry: list[tuple[int, Place]] = []
        self._order: list[Place] | None = None
        renew_after_fork(self)

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        return self._apply(machine.claim, ask)

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return self._apply(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return self._apply(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return self._apply(machine.settle, ask)

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return self._apply(machine.release, ask)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return self._apply(machine.resolve, ask)

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return self._apply(machine.forget, ask)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        record = self._records.get((scope or "", key))
        return None if record is None or machine.expired(record, self._clock()) else record

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        with self._lock:
            now = self._clock()
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
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""
        purged = 0
        with self._lock:
            now = self._clock()
            while purged < limit and self._expiry and self._expiry[0][0] <= now - grace:
                _, place = heappop(self._expiry)
                record = self._records.get(place)
                # A record that moved its expiry has another entry; this one is out of date.
                if record is not None and machine.purgeable(record, now, grace):
                    self._remove(place)
                    purged += 1
        return purged

    def close(self) -> None:
        """Nothing to close; the records stay."""

    def as_async(self) -> Inline:
        """The same store for coroutines. Nothing here blocks, so nothing is moved to a thread."""
        return Inline(self)

    def after_fork(self) -> None:
        """The child has its own copy of the records and needs its own lock."""
        self._lock = threading.Lock()

    def _apply(
        self, transition: Callable[[Record | None, R, int], tuple[Record | None, A]], ask: R
    ) -> A:
        place = (ask.scope or "", ask.key)
        with self._lock:
            before = self._records.get(place)
            after, answer = transition(before, ask, self._clock())
            if after is not before:
                if after is None:
                    self._remove(place)
                else:
                    self._put(place, before, after)
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
