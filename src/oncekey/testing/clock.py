"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from typing import Final

from oncekey.policy import Duration, microseconds, seconds

START: Final = 1_767_225_600_000_000
"""The first day of 2026, in microseconds: tokens and times look as they do in production."""


class FakeClock:
    """A clock that returns microseconds when it is called. It never goes back."""

    def __init__(self, start: int = START) -> None:
        """Start at `start`, in microseconds since the epoch."""
        self._now = start
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """Return the time, in microseconds since the epoch."""
        return self._now

    def advance(self, duration: Duration) -> None:
        """Move the clock by a duration such as "5min", a number of seconds or a timedelta."""
        self.tick(microseconds(seconds(duration, "duration")))

    def tick(self, microseconds: int) -> None:
        """Move the clock by this many microseconds. Raise `ValueError` if it is negative."""
        if microseconds < 0:
            msg = f"a clock does not go back, and certainly not by {-microseconds} microseconds"
            raise ValueError(msg)
        with self._lock:
            self._now += microseconds

    def __repr__(self) -> str:
        return f"FakeClock({self._now})"
