"""Simulated processes: callers that can be cut off at any point, as if they had been killed.

A real kill takes everything at once: no handler runs, nothing is released, no lease is renewed.
Here a crash raises `Crashed`, which no `except Exception` catches. Code that cleans up on its way
out runs in a dead process: its requests do not reach the store, and its effects do not happen.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple

from oncekey.errors import UnreadableError

Act = Literal["crash", "pause", "lose"]
PATIENCE: Final = 30.0
"""The seconds that a paused process waits to go on; much more than a test should take."""


class Crashed(BaseException):
    """Raised where the simulated process was killed."""


class GoneError(UnreadableError):
    """Raised in the keeper for a dead process. It does not repeat what cannot be read."""


class Plan(NamedTuple):
    """What happens to a process, and at which of the points that it passes."""

    act: Act
    place: int


class Process:
    """One simulated process: which points it has passed, and whether it is alive."""

    def __init__(self, number: int, plan: Plan | None = None) -> None:
        """`plan` says what happens to the process, and at which point."""
        self.number: Final = number
        self.passed: Final[list[str]] = []
        self.alive = True
        self.paused: Final = threading.Event()
        self._go_on: Final = threading.Event()
        self._plan = plan
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raise `Crashed` if the process is dead."""
        if not self.alive:
            raise Crashed

    def passing(self, point: str) -> bool:
        """Pass the point and act on the plan. Return whether the store's answer is lost here."""
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
        """Let the process go on if it is paused."""
        self._go_on.set()


NOBODY: Final = Process(0)
"""The process of code outside of any schedule."""

here: Final[ContextVar[Process]] = ContextVar("oncekey_process", default=NOBODY)
"""The process that the present code runs in."""
