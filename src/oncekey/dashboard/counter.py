"""Count the calls of this process and what became of them, in bounded memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from oncekey.compat import renew_after_fork
from oncekey.observe import Event, Name

SLOT_SECONDS: Final = 5.0
"""The number of seconds in one slot."""
SLOTS: Final = 60
RECENT: Final = 12
"""The number of slots that a rate is computed over: one minute."""

_CHECKS: Final[frozenset[Name]] = frozenset(
    ("new", "taken_over", "duplicate", "busy", "reused", "held", "refused", "unprotected")
)
"""The events that end a check of a key. The metrics count the same ones."""
_SAVED: Final[frozenset[Name]] = frozenset(("duplicate", "busy"))
"""The events of calls that would have run a second time."""


class CallCounts(Struct, frozen=True):
    """The counts up to now. The lists have one number per slot, the oldest first."""

    since: float
    counted: dict[str, int]
    checks: list[int]
    saved: list[int]

    @property
    def total(self) -> int:
        """The number of keys that were checked."""
        return sum(self.counted.get(name, 0) for name in _CHECKS)

    @property
    def duplicates(self) -> int:
        """The number of calls that did not run a second time."""
        return sum(self.counted.get(name, 0) for name in _SAVED)

    @property
    def per_second(self) -> float:
        """The number of checks per second over the last minute."""
        return sum(self.checks[-RECENT:]) / (RECENT * SLOT_SECONDS)

    @property
    def share(self) -> float | None:
        """The share of checks that were duplicates; None while there was no check."""
        return self.duplicates / self.total if self.total else None


class CallCounter:
    """An observer that counts events. It keeps their names and no keys, so it cannot grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = time.time()
        self._counted: dict[str, int] = {}
        self._newest = 0
        self._checks = [0] * SLOTS
        self._saved = [0] * SLOTS
        renew_after_fork(self)

    def wants(self, name: Name) -> bool:
        """Return whether it counts events of this name."""
        return name in _CHECKS

    def __call__(self, event: Event, /) -> None:
        """Count the event."""
        if event.name not in _CHECKS:
            return
        with self._lock:
            place = self._turn()
            self._counted[event.name] = self._counted.get(event.name, 0) + event.count
            self._checks[place] += event.count
            if event.name in _SAVED:
                self._saved[place] += event.count

    def counts(self) -> CallCounts:
        """Return the counts up to now."""
        with self._lock:
            start = self._turn() + 1
            return CallCounts(
                self._since,
                dict(self._counted),
                self._checks[start:] + self._checks[:start],
                self._saved[start:] + self._saved[:start],
            )

    def after_fork(self) -> None:
        """Start from zero in the child, which counts its own calls."""
        self._lock = threading.Lock()
        self._since = time.time()
        self._counted = {}
        self._checks = [0] * SLOTS
        self._saved = [0] * SLOTS

    def _turn(self) -> int:
        """Clear the slots that have passed. Return the index of the present slot."""
        newest = int(self._clock() / SLOT_SECONDS)
        for passed in range(max(self._newest + 1, newest - SLOTS + 1), newest + 1):
            self._checks[passed % SLOTS] = self._saved[passed % SLOTS] = 0
        self._newest = max(self._newest, newest)
        return self._newest % SLOTS
