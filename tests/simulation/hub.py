"""Virtual time, and those who live in it.

Every thread, coroutine and keeper of a simulated process is an activity: a greenlet that runs
until it waits for something. What happens next is always the earliest event; of two at the same
microsecond a draw of the seed decides. No time passes while code runs.
"""

from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]  # it ships no types

if TYPE_CHECKING:
    from tests.simulation.process import Process

MICRO = 1e-6
NEVER = 1 << 62
"""A time that does not come."""


class DeadError(BaseException):
    """The process is gone: nothing of it goes on."""


class ClosedWaitsError(RuntimeError):
    """A coroutine that was closed went on waiting for something."""


class Activity:
    """Something that runs in a process until it waits."""

    over = True  # what is left of it when it has ended and all else is cleared
    ident = 0
    waits = -1
    owner: Any = None

    def __init__(self, process: "Process", function: Callable[[], None]) -> None:
        self.process = process
        self.function = function
        self.waits = 0
        self.over = False
        self.closed = False
        self.runner: Any = None
        self.when_over: list[Callable[[], None]] = []

    def done(self) -> bool:
        """Whether it has ended, as a task says it."""
        return self.over

    def end(self) -> None:
        """Whoever waits for it knows, and nothing of it is left."""
        self.process.activities.pop(self, None)
        tell = self.when_over
        self.__dict__.clear()
        for one in tell:
            one()


_idle: list[Any] = []
"""Greenlets that have nothing to run: making one costs more than running most activities."""


def _run(first: tuple["Hub", Activity]) -> None:
    """What a greenlet does: one activity after the other."""
    hub, activity = first
    while True:
        try:
            Context().run(activity.function)  # what a torn call leaves in its own is nobody else's
        except (DeadError, GeneratorExit) as end:
            end.__traceback__ = None
        except GreenletExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the hub raises it where the seed is known
            hub.broken = hub.broken or error
        activity.end()
        _idle.append(getcurrent())
        main, hub, activity = hub.main, None, None  # type: ignore[assignment]  # keeps no world alive
        hub, activity = main.switch()


class Hub:
    """The events to come, and whose turn it is."""

    def __init__(self, seed: int) -> None:
        self.now = 0
        self.main = getcurrent()
        self.current: Activity | None = None
        self.process: Process | None = None
        self.broken: BaseException | None = None
        self.enough = False
        self._seed = seed & 0xFFFFFFFF
        self._number = 0
        self._heap: list[tuple[int, int, int, Callable[[Any], None], Any]] = []

    # Events

    def at(self, when: int, function: Callable[[Any], None], argument: object = None) -> None:
        """The function is called at that time."""
        self._number = number = self._number + 1
        tie = ((number * 0x9E3779B1) ^ self._seed) >> 3 & 0xFFF
        heappush(self._heap, (when, tie, number, function, argument))

    def run(self, until: int) -> None:
        """Everything up to that time has happened, or somebody said that it is enough."""
        heap, self.enough = self._heap, False
        while heap and heap[0][0] <= until:
            when, _, _, function, argument = heappop(heap)
            self.now = when
            function(argument)
            if self.broken is not None:
                raise self.broken
            if self.enough:
                return
        self.now = max(self.now, until)

    # Activities

    def start(self, process: "Process", function: Callable[[], None]) -> Activity:
        """The function runs in the process, from now on."""
        activity = Activity(process, function)
        process.activities[activity] = None
        self.at(self.now, self._resume, (activity, 0, None))
        return activity

    def wait(self, seconds: float | None = None) -> object:
        """What somebody wakes this activity with; None when the time is over."""
        activity = self.current
        assert activity is not None
        if activity.process.dead:
            raise DeadError
        if activity.closed:
            raise ClosedWaitsError
        activity.waits += 1
        if seconds is not None:
            wait = int(seconds * 1_000_000 / activity.process.rate) + 1  # never too early
            self.at(self.now + max(wait, 0), self._resume, (activity, activity.waits, None))
        return self.main.switch()

    def waker(self) -> Callable[[Any], None]:
        """How the next wait of this activity is ended."""
        activity = self.current
        assert activity is not None
        number = activity.waits + 1

        def wake(value: object = None) -> None:
            self.at(self.now, self._resume, (activity, number, value))

        return wake

    def wake_at(self, when: int, activity: Activity, number: int, value: object) -> None:
        """The wait with this number ends then."""
        self.at(when, self._resume, (activity, number, value))

    def throw(self, activity: Activity, error: BaseException) -> None:
        """The activity is cut off where it waits; one that has not begun never begins."""
        if activity.over:
            return
        if activity.runner is None:
            activity.end()
            return
        activity.waits += 1
        self.current, self.process = activity, activity.process
        activity.runner.throw(error)

    def _resume(self, what: tuple[Activity, int, object]) -> None:
        activity, number, value = what
        if activity.over or activity.waits != number:
            return
        process = activity.process
        if process.paused_until > self.now:
            self.at(process.paused_until, self._resume, what)
            return
        self.current, self.process = activity, process
        if activity.runner is None:
            activity.runner = _idle.pop() if _idle else greenlet(_run, self.main)
            activity.runner.switch((self, activity))
        else:
            activity.runner.switch(value)

    # Coroutines

    def drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns; this activity waits whenever it does."""
        error: BaseException | None = None
        while True:
            try:
                future = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                error = None
            try:
                future._asyncio_future_blocking = False
                wake = self.waker()
                future.add_done_callback(wake)
                self.wait()
            except BaseException as cut:  # noqa: BLE001 - handed on to the coroutine
                error = cut
