"""What the calls of this process have met: counted as it happens, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from oncekey.compat import renew_after_fork
from oncekey.observe import Event, Name

SLOT_SECONDS: Final = 5.0
"""Seconds in one slot of the recent past."""
SLOTS: Final = 60
RECENT: Final = 12
"""How many slots a rate is told over: one minute."""

_CHECKS: Final[frozenset[Name]] = frozenset(
    ("new", "taken_over", "duplicate", "busy", "reused", "held", "refused", "unprotected")
)
"""The events that end a check of a key; the metrics count the same."""
_SAVED: Final[frozenset[Name]] = frozenset(("duplicate", "busy"))
"""Calls that would have run a second time."""


class CallCounts(Struct, frozen=True):
    """What was counted up to now. The lists are per slot, the oldest first."""

    since: float
    counted: dict[str, int]
    checks: list[int]
    saved: list[int]

    @property
    def total(self) -> int:
        """How many keys were checked."""
        return sum(self.counted.get(name, 0) for name in _CHECKS)

    @property
    def duplicates(self) -> int:
        """How many calls did not run a second time."""
        return sum(self.counted.get(name, 0) for name in _SAVED)

    @property
    def per_second(self) -> float:
        """Checks in each second of the last minute."""
        return sum(self.checks[-RECENT:]) / (RECENT * SLOT_SECONDS)

    @property
    def share(self) -> float | None:
        """Which part of the checks were duplicates; None while there was no check."""
        return self.duplicates / self.total if self.total else None


class CallCounter:
    """An observer that counts. It knows names of events and no keys, so it cannot grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is counted yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._since = time.time()
        self._counted: dict[str, int] = {}
        self._newest = 0
        self._checks = [0] * SLOTS
        self._saved = [0] * SLOTS
        renew_after_fork(self)

    def wants(self, name: Name) -> bool:
        """Whether it counts events of this name."""
        return name in _CHECKS

    def __call__(self, event: Event, /) -> None:
        """The event is counted."""
        if event.name not in _CHECKS:
            return
        with self._lock:
            place = self._turn()
            self._counted[event.name] = self._counted.get(event.name, 0) + event.count
            self._checks[place] += event.count
            if event.name in _SAVED:
                self._saved[place] += event.count

    def counts(self) -> CallCounts:
        """What was counted up to now."""
        with self._lock:
            start = self._turn() + 1
            return CallCounts(
                self._since,
                dict(self._counted),
                self._checks[start:] + self._checks[:start],
                self._saved[start:] + self._saved[:start],
            )

    def after_fork(self) -> None:
        """The child counts its own calls."""
        self._lock = threading.Lock()
        self._since = time.time()
        self._counted = {}
        self._checks = [0] * SLOTS
        self._saved = [0] * SLOTS

    def _turn(self) -> int:
        """Slots that have passed are empty; the place of the present one."""
        newest = int(self._clock() / SLOT_SECONDS)
        for passed in range(max(self._newest + 1, newest - SLOTS + 1), newest + 1):
            self._checks[passed % SLOTS] = self._saved[passed % SLOTS] = 0
        self._newest = max(self._newest, newest)
        return self._newest % SLOTS
