"""What every part of the suite stands on, and what a store's own tests may override."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from oncekey.testing.clock import FakeClock
from oncekey.testing.suite.desk import Desk
from oncekey.testing.suite.drive import Line

Tick = Callable[[int], None]


class Suite:
    """The settings and fixtures of the suite.

    By default time is a `FakeClock` that the store is given. A store whose time is its server's
    overrides `clock` (how to ask for that time), `tick` (really waits) and `blur`.
    """

    lease: ClassVar[int] = 200_000
    """Microseconds of a lease. A test waits for a few of them at most."""

    ttl: ClassVar[int] = 300_000
    """Microseconds that a settled record lives."""

    blur: ClassVar[int] = 0
    """How many microseconds may pass by themselves during a test; well below a third of `lease`."""

    purges: ClassVar[bool] = True
    """False where the server removes expired records by itself, and `purge` has nothing to do."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        """The store's time, in microseconds when called."""
        return FakeClock()

    @pytest.fixture
    def tick(self, clock: FakeClock) -> Tick:
        """Called with microseconds, it comes back when so many have passed for the store."""
        return clock.tick

    @pytest.fixture
    def line(self) -> Line:
        """The store under test, blocking."""
        raise NotImplementedError

    @pytest.fixture
    def desk(self, line: Line) -> Desk:
        """One key of the store under test."""
        return Desk(line, lease=self.lease, ttl=self.ttl)

    def almost(self, length: int) -> int:
        """The longest wait after which `length` has surely not passed."""
        return length - 1 - self.blur

    @property
    def rest(self) -> int:
        """The shortest wait after `almost` that surely completes the length."""
        return 1 + 2 * self.blur
