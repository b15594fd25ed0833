"""Pretended processes: callers that can be cut off at any point, as if they had been killed.

A real kill takes everything at once: no handler runs, nothing is given back, nobody renews. Here
a crash raises `Crashed`, which no `except Exception` catches. What cleans up on its way out finds
a process that is dead: the store does not hear it any more, and no effect happens for it.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple

from oncekey.errors import OncekeyError

Act = Literal["crash", "pause", "lose"]
PATIENCE: Final = 30.0
"""Seconds that a paused process waits to be told to go on; long past what a test should take."""


class Crashed(BaseException):
    """The process was killed here."""


class GoneError(OncekeyError):
    """What the library's own threads are told on behalf of a dead process: do not try again."""


class Plan(NamedTuple):
    """What happens to a process, and at which of the points that it passes."""

    act: Act
    place: int


class Process:
    """One pretended process: which points it has passed, and whether it is still there."""

    def __init__(self, number: int, plan: Plan | None = None) -> None:
        """It lives, and does what the plan says when it gets there."""
        self.number: Final = number
        self.passed: Final[list[str]] = []
        self.alive = True
        self.paused: Final = threading.Event()
        self._go_on: Final = threading.Event()
        self._plan = plan
        self._lock = threading.Lock()

    def check(self) -> None:
        """Nothing more is done by a process that is dead."""
        if not self.alive:
            raise Crashed

    def passing(self, point: str) -> bool:
        """The point is reached; whether what the store answered here is lost."""
        self.check()
        with self._lock:
            place = len(self.passed)
            self.passed.append(point)
        if self._plan is None or self._plan.place != place:
            return False
        if self._plan.act == "crash":
            self.alive = False
            raise Crashed
        if self._plan.act == "pause":
            self.paused.set()
            self._go_on.wait(PATIENCE)
        return self._plan.act == "lose"

    def go_on(self) -> None:
        """If it is paused, it is so no longer."""
        self._go_on.set()


NOBODY: Final = Process(0)
"""Who calls outside of any schedule."""

here: Final[ContextVar[Process]] = ContextVar("oncekey_process", default=NOBODY)
"""The process that this code belongs to."""
