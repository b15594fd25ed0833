"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from typing import Final

from oncekey.policy import Duration, microseconds, seconds

START: Final = 1_767_225_600_000_000
"""The first day of 2026, in microseconds: tokens and times look as they do in production."""


class FakeClock:
    """Called, it tells the time in microseconds. It never goes back."""

    def __init__(self, start: int = START) -> None:
        """The time is `start` until somebody moves it."""
        self._now = start
        self._lock = threading.Lock()

    def __call__(self) -> int:
        """The time, in microseconds since the epoch."""
        return self._now

    def advance(self, duration: Duration) -> None:
        """It is later by a duration such as "5min", a number of seconds or a timedelta."""
        self.tick(microseconds(seconds(duration, "duration")))

    def tick(self, microseconds: int) -> None:
        """It is later by so many microseconds."""
        if microseconds < 0:
            msg = f"a clock does not go back, and certainly not by {-microseconds} microseconds"
            raise ValueError(msg)
        with self._lock:
            self._now += microseconds

    def __repr__(self) -> str:
        return f"FakeClock({self._now})"
