"""What the pages ask the store and the doctor, on threads that may wait for them."""

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
from oncekey.inspection.listing import count_records, fill_page, find_record
from oncekey.once import Once
from oncekey.stores.browse import RecordCounts, RecordPage, RecordQuery, ScopeAndKey

T = TypeVar("T")

_COUNTED_FOR: Final = 2.0
"""Seconds that a count serves everybody who looks."""
_PRICE: Final = 10
"""A count that takes long serves so many times as long."""
_SAMPLES: Final = 60
_MINUTE: Final = 60_000_000


class CountTrend(Struct, frozen=True):
    """How many records there are, and how that has changed."""

    counts: RecordCounts
    per_minute: float | None
    """How many more in a minute than before; None while that is not known."""


class Shared(Generic[T]):
    """A question whose answer serves everybody for a while, however many ask."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        """`ask` may take long; it is asked by one at a time."""
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._answer: T | OncekeyError | None = None
        self._good_until = 0.0

    def __call__(self, *, anew: bool = False) -> T:
        """The answer; the error of the library that came instead is raised for everybody."""
        with self._lock:
            if anew or time.monotonic() >= self._good_until:
                self._ask_now()
            if isinstance(self._answer, OncekeyError):
                raise self._answer.with_traceback(None)
            return cast("T", self._answer)

    def _ask_now(self) -> None:
        begun = time.monotonic()
        try:
            self._answer = self._ask()
        except OncekeyError as error:
            self._answer = error
        ended = time.monotonic()
        self._good_until = ended + max(self._seconds, _PRICE * (ended - begun))


class Queries:
    """The records of a `Once`, as pages look at them."""

    def __init__(self, once: Once) -> None:
        """Nothing is asked yet."""
        self._once = once
        self._seen: deque[RecordCounts] = deque(maxlen=_SAMPLES)
        self._trend = Shared(self._counted, _COUNTED_FOR)

    async def page(self, ask: RecordQuery, seconds: float = 1.0) -> RecordPage:
        """A page of records; less when the time is over, where the store has to search."""
        return await run_in_threadpool(lambda: fill_page(self._once.store, ask, seconds))

    async def record(self, place: ScopeAndKey) -> Record | None:
        """One record; of a newer release, what can be read of it."""
        return await run_in_threadpool(lambda: find_record(self._once.store, *place))

    async def trend(self) -> CountTrend:
        """How many records there are, at most a few seconds ago."""
        return await run_in_threadpool(self._trend)

    def _counted(self) -> CountTrend:
        present = count_records(self._once.store)
        before = next((one for one in self._seen if present.now - one.now < 5 * _MINUTE), None)
        self._seen.append(present)
        return CountTrend(present, _change(before, present))


def _change(before: RecordCounts | None, present: RecordCounts) -> float | None:
    """Estimates differ without any record having come: their difference says nothing."""
    if before is None or not (before.exact and present.exact) or present.now <= before.now:
        return None
    return (present.total - before.total) * _MINUTE / (present.now - before.now)


_EXAMINED_FOR: Final = 300.0
_TONES: Final = {"danger": "failed", "warning": "held", "fine": "completed"}


def severity_tone(finding: Finding) -> str:
    """The colour of its severity."""
    return _TONES[finding.severity]


class Examinations:
    """The findings of the doctor, for everybody who looks."""

    def __init__(self, once: Once) -> None:
        """Nothing is asked yet."""
        self._findings = Shared(lambda: examine(once.store), _EXAMINED_FOR)

    async def findings(self, *, anew: bool = False) -> list[Finding]:
        """What was found, the worst first."""
        return await run_in_threadpool(self._findings, anew=anew)
