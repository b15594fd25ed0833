"""What the pages ask the store and the doctor. It runs on threads, because it blocks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from msgspec import Struct
from starlette.concurrency import run_in_threadpool

from oncekey.core.record import Record
from oncekey.doctor import Finding, examine
from oncekey.errors import OncekeyError
from oncekey.inspection.listing import (
    Breakdown,
    break_down,
    count_records,
    fill_page,
    find_record,
    read_activity,
)
from oncekey.once import Once
from oncekey.stores.activity import Activity
from oncekey.stores.browse import RecordCounts, RecordPage, RecordQuery, ScopeAndKey

T = TypeVar("T")

_COUNTED_FOR: Final = 2.0
"""The number of seconds for which one count is shared by all pages."""
_PRICE: Final = 10
"""A slow count is shared for this many times as long as it took."""
_SAMPLES: Final = 60
FEW: Final = 6
_SHORT: Final = 0.25
"""How many seconds a look searches for held records if the store has no index of them."""
_MINUTE: Final = 60_000_000
_BROKEN_DOWN: Final = 20_000
"""The number of records that are counted by label and scope."""


class StoreView(Struct, frozen=True, kw_only=True):
    """What the overview shows of the store, all of it read together."""

    counts: RecordCounts
    per_minute: float | None
    """The change in records per minute; None while it is not known."""
    held: RecordPage
    newest: RecordPage
    activity: Activity | None = None
    """How many calls there were over time, in all processes; None if the store does not know."""

    @property
    def at(self) -> int:
        """The moment, by the clock of the store."""
        return self.counts.now


class Shared(Generic[T]):
    """Ask a question once and share the answer for a while."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        """`ask` may take long. It is called by one thread at a time."""
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._answer: T | OncekeyError | None = None
        self._good_until = 0.0

    def __call__(self, *, anew: bool = False) -> T:
        """Return the answer. If `ask` raised an error of the library, raise it for every caller.

        `anew` asks again even if the last answer is still good.
        """
        with self._lock:
            if anew or time.monotonic() >= self._good_until:
                self._ask_now()
            if isinstance(self._answer, OncekeyError):
                raise self._answer.with_traceback(None)
            return cast("T", self._answer)

    def outdate(self) -> None:
        """Ask again at the next call."""
        self._good_until = 0.0

    def _ask_now(self) -> None:
        begun = time.monotonic()
        try:
            self._answer = self._ask()
        except OncekeyError as error:
            self._answer = error
        ended = time.monotonic()
        self._good_until = ended + max(self._seconds, _PRICE * (ended - begun))


class Queries:
    """Read the records of a `Once` for the pages."""

    def __init__(self, once: Once) -> None:
        self._once = once
        self._seen: deque[RecordCounts] = deque(maxlen=_SAMPLES)
        self._look = Shared(self._looked, _COUNTED_FOR)
        self._breakdown = Shared(
            lambda: break_down(once.store, most=_BROKEN_DOWN, seconds=2.0), _COUNTED_FOR
        )

    async def page(self, ask: RecordQuery, seconds: float = 1.0) -> RecordPage:
        """Return a page of records, or less after `seconds` if the store has to search."""
        return await run_in_threadpool(lambda: fill_page(self._once.store, ask, seconds))

    async def record(self, place: ScopeAndKey) -> Record | None:
        """Return one record, or None. Read one of a newer release as far as possible."""
        return await run_in_threadpool(lambda: find_record(self._once.store, *place))

    async def breakdown(self) -> Breakdown:
        """Return the records by label and scope, as they were at most a few seconds ago."""
        return await run_in_threadpool(self._breakdown)

    async def look(self) -> StoreView:
        """Return what there is, as it was at most a few seconds ago."""
        return await run_in_threadpool(self._look)

    def outdate(self) -> None:
        """Let the next look read the store again, because something was changed here."""
        self._look.outdate()

    def _looked(self) -> StoreView:
        store = self._once.store
        newest = fill_page(store, RecordQuery(limit=FEW))
        held = fill_page(store, RecordQuery(status="held", limit=FEW), _SHORT)
        present = count_records(store)
        _agree(present, held)
        before = next((one for one in self._seen if present.now - one.now < 5 * _MINUTE), None)
        self._seen.append(present)
        return StoreView(
            counts=present,
            per_minute=_change(before, present),
            held=held,
            newest=newest,
            activity=read_activity(store),
        )


def _agree(counts: RecordCounts, held: RecordPage) -> None:
    """Let the number of held records be that of the list, where the list has them all.

    They are read one after the other, and something may have been held or resolved in between.
    """
    listed, counted = len(held.records), counts.by_status["held"]
    if held.after is not None and (listed <= counted or not counts.held_exact):
        return
    counts.by_status["held"] = listed
    counts.total += listed - counted
    counts.held_exact = True


def _change(before: RecordCounts | None, present: RecordCounts) -> float | None:
    """Return the change per minute, or None unless both counts are exact.

    Two estimates differ without any new record, so their difference says nothing.
    """
    if before is None or not (before.exact and present.exact) or present.now <= before.now:
        return None
    return (present.total - before.total) * _MINUTE / (present.now - before.now)


_EXAMINED_FOR: Final = 300.0
_TONES: Final = {"danger": "failed", "warning": "held", "fine": "completed"}


def severity_tone(finding: Finding) -> str:
    """Return the colour for the severity of a finding."""
    return _TONES[finding.severity]


class Examinations:
    """The findings of the doctor, shared by all pages."""

    def __init__(self, once: Once) -> None:
        self._findings = Shared(lambda: examine(once.store), _EXAMINED_FOR)

    async def findings(self, *, anew: bool = False) -> list[Finding]:
        """Return the findings, the worst first. `anew` examines the store again."""
        return await run_in_threadpool(self._findings, anew=anew)
