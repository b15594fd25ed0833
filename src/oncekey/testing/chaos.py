"""Run a handler with duplicates, overlaps, crashes and lost replies, and count its effects."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar, cast

from msgspec import Struct

from oncekey.core.requests import Scan
from oncekey.engine.breaker import Breaker
from oncekey.engine.runtime import Core
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    OutcomeUnknownError,
    StoreError,
)
from oncekey.once import Once
from oncekey.stores.base import Store
from oncekey.testing.chaos_store import ChaosStore, FlightsApart
from oncekey.testing.clock import FakeClock
from oncekey.testing.effects import AsyncEffect, Effect, checked_name
from oncekey.testing.processes import PATIENCE, Crashed, Plan, Process, here

# The report: how often each effect happened in each schedule, as a table for people.


MOST_SHOWN: Final = 25
_WIDEST: Final = 60


class ChaosError(AssertionError):
    """An effect happened too often or not at all, or callers got different answers."""


class ScheduleResult(Struct):
    """One schedule and its result."""

    schedule: str
    counts: dict[str, int] = {}
    answers: list[Any] = []
    wrong: list[str] = []
    held: bool = False
    """Whether it ended as "outcome unknown", which a person resolves."""

    @property
    def remark(self) -> str:
        """The remark at the end of its row: what is wrong, or "held"."""
        return "; ".join(self.wrong) or ("held" if self.held else "")


class Report(Struct):
    """The result of every schedule that was tried."""

    expected: dict[str, int]
    rows: list[ScheduleResult]

    @property
    def wrong(self) -> list[ScheduleResult]:
        """The schedules in which something went wrong."""
        return [row for row in self.rows if row.wrong]

    def __str__(self) -> str:
        """Return the table: only what is wrong, or everything if nothing is."""
        wrong = self.wrong
        names = list(self.expected)
        head = f"{len(wrong)} of {len(self.rows)} schedules went wrong"
        chosen = (wrong or self.rows)[:MOST_SHOWN]
        width = min(_WIDEST, max(len(row.schedule) for row in chosen))
        lines = [head, "", self._line("schedule", {name: name for name in names}, width, "")]
        lines += [self._line(row.schedule, row.counts, width, row.remark) for row in chosen]
        if len(wrong or self.rows) > MOST_SHOWN:
            lines.append(f"... and {len(wrong or self.rows) - MOST_SHOWN} more")
        if wrong:
            lines += ["", self.advice()]
        return "\n".join(lines)

    @staticmethod
    def _line(schedule: str, cells: Mapping[str, object], width: int, wrong: str) -> str:
        columns = "".join(f"  {cells.get(name, 0)!s:>{max(6, len(name))}}" for name in cells)
        return f"  {schedule:<{width}}{columns}  {wrong}".rstrip()

    def advice(self) -> str:
        """Return a sentence on what is most likely missing."""
        names = [row.schedule for row in self.wrong]
        if not any(any(row.counts.values()) for row in self.rows):
            return (
                "Nothing happened after the first run: what does your handler keep elsewhere? "
                "Pass reset= to put it back."
            )
        if any(not name.startswith("crash") for name in names):
            return (
                "A repeated call did something again: protect the function, "
                "as in @once('charge:{order.id}')."
            )
        return (
            "Only crashes did it: the effect was there and the record was not yet. Give the effect"
            "\na key, idempotency_key=current().downstream_key('charge'), or look it up with"
            "\nreconcile=, or choose on_crash='hold'."
        )


# The schedules: what happens to which caller, and in which order.


Kind = Literal["again", "overlap", "crash", "lose"]


class Schedule(NamedTuple):
    """One order of events. `plan` is what happens to the first caller."""

    name: str
    kind: Kind
    plan: Plan | None = None
    elsewhere: bool = True
    """Whether the second caller is in another process."""


AGAIN: Final = (
    Schedule("the same call again", "again", elsewhere=False),
    Schedule("the same call again, in another process", "again"),
)


def schedules(points: list[str]) -> Iterator[Schedule]:
    """Yield every schedule for a call that passes these points when nothing goes wrong."""
    yield from AGAIN
    for place, point in enumerate(points):
        plan = Plan("pause", place)
        yield Schedule(f"another caller {point}", "overlap", plan, elsewhere=False)
        yield Schedule(f"another process {point}", "overlap", plan)
    for place, point in enumerate(points):
        yield Schedule(f"crash {point}, then again", "crash", Plan("crash", place))
    for place, point in enumerate(points):
        if point in _REPLIES or point.startswith("after note"):
            lost = point.removeprefix("after ")
            yield Schedule(f"reply of {lost} lost, then again", "lose", Plan("lose", place))


_REPLIES: Final = ("after claim", "after settle", "after release")


# A caller of a handler, on a thread of its own, with an event loop if it needs one.


UNTRIED: Final = object()
"""The answer of a caller that got none."""


class Caller:
    """One call in one simulated process."""

    def __init__(self, call: Callable[[], Any], process: Process) -> None:
        """Start the call on a thread."""
        self.process: Final = process
        self.answer: Any = UNTRIED
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        here.set(self.process)
        try:
            answer = self._call()
            if inspect.isawaitable(answer):
                answer = asyncio.run(_awaited(answer))
        except BaseException as error:  # noqa: BLE001 - judged by whoever waits
            self.error = error
        else:
            if self.process.alive:  # a dead process gets no answer
                self.answer = answer

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the call, by default `PATIENCE` seconds. Return whether it has ended."""
        self._thread.join(PATIENCE if seconds is None else seconds)
        return not self._thread.is_alive()


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


# Running schedules: callers come, crash and come back, time passes, effects are counted.


_A_MOMENT: Final = 0.002
_HEAD_START: Final = 0.03
"""The number of seconds that a second caller gets while the first one is paused."""
_TRIES: Final = 10
_LEASES: Final = 4
"""How many leases pass after a crash: one for the lease itself, and more than two for `quiet`."""
_EVERYTHING: Final = 10_000
_LATER: Final = (InProgressError, LeaseLostError, NotRecordedError, StoreError)
_HANGS: Final = "it hangs"


class ScheduleRunner:
    """Run one handler through schedule after schedule."""

    def __init__(
        self,
        call: Callable[[], Any],
        store: ChaosStore,
        effects: dict[str, Effect],
        *,
        reset: Callable[[], object],
        busy: Callable[[Any], bool],
    ) -> None:
        self._call, self._store, self._effects = call, store, effects
        self._reset, self._busy = reset, busy
        self._processes = 0

    def undisturbed(self) -> tuple[dict[str, int], list[str]]:
        """Run the call once without faults. Return the count of each effect and the points passed.

        Raise `ChaosError` if it hangs or has no effect, or the error of the handler.
        """
        self._begin()
        process = self._process()
        caller = Caller(self._call, process)
        if not caller.wait():
            msg = f"the handler did not end within {PATIENCE:.0f} s, without any disturbance"
            raise ChaosError(msg)
        if caller.error is not None:
            raise caller.error
        never = [effect.name for effect in self._effects.values() if not effect.count]
        if never:
            msg = f"nobody had the effect {', '.join(never)}: call it in place of the real thing"
            raise ChaosError(msg)
        return self._counts(), list(process.passed)

    def play(self, schedule: Schedule, expected: dict[str, int]) -> ScheduleResult:
        """Run one schedule and return what came of it."""
        self._begin()
        row = ScheduleResult(schedule.name)
        process = self._process(schedule.plan)
        first = Caller(self._call, process)
        if schedule.kind == "overlap":
            self._overlap(schedule, first, row)
        elif not first.wait():
            row.wrong.append(_HANGS)
        if schedule.kind == "crash":
            self._pass_leases()
        self._take(first, row)
        same = schedule.kind == "again" and not schedule.elsewhere
        self._insist(process if same else None, row)
        row.counts = self._counts()
        self._judge(row, expected)
        return row

    def _overlap(self, schedule: Schedule, first: Caller, row: ScheduleResult) -> None:
        """Let a second caller come while the first one is paused."""
        process = first.process
        while not process.paused.wait(_A_MOMENT) and not first.wait(0):
            """It is on its way."""
        second = Caller(self._call, self._process() if schedule.elsewhere else process)
        second.wait(_HEAD_START)
        process.go_on()
        if not (first.wait() and second.wait()):
            row.wrong.append(_HANGS)
        self._take(second, row)

    def _take(self, caller: Caller, row: ScheduleResult) -> bool:
        """Add the answer of a caller to the row. Return whether it has to ask again."""
        error = caller.error
        if caller.answer is not UNTRIED and not self._busy(caller.answer):
            row.answers.append(caller.answer)
            return False
        if isinstance(error, OutcomeUnknownError):
            row.held = True
            return False
        if error is not None and not isinstance(error, (Crashed, *_LATER)):
            row.wrong.append(f"{type(error).__name__}: {error}")
            return False
        return True

    def _insist(self, process: Process | None, row: ScheduleResult) -> None:
        """Call until there is an answer, and let leases end between the calls."""
        for _ in range(_TRIES):
            caller = Caller(self._call, process or self._process())
            if not caller.wait():
                row.wrong.append(_HANGS)
                return
            if not self._take(caller, row):
                return
            self._pass_leases()
        row.wrong.append("no answer")

    @staticmethod
    def _judge(row: ScheduleResult, expected: dict[str, int]) -> None:
        for name, wanted in expected.items():
            count = row.counts[name]
            if count > wanted:
                row.wrong.append(f"{name} happened {count} times")
            elif count < wanted and not row.held:
                row.wrong.append(f"{name} did not happen")
        told = row.answers
        if any(answer != told[0] for answer in told[1:]):
            row.wrong.append(f"two answers: {told[0]!r} and {told[-1]!r}")

    # The state of the world

    def _begin(self) -> None:
        self._store.empty()
        for effect in self._effects.values():
            effect.reset()
        self._reset()

    def _process(self, plan: Plan | None = None) -> Process:
        self._processes += 1
        return Process(self._processes, plan)

    def _counts(self) -> dict[str, int]:
        return {name: effect.count for name, effect in self._effects.items()}

    def _pass_leases(self) -> None:
        """Move the clock past every lease, and past the last request of a dead attempt."""
        clock = self._store.clock
        now = clock()
        found = self._store.records.scan(Scan(limit=_EVERYTHING)).records
        ends = [
            record.lease_end + _LEASES * max(0, record.lease_end - record.updated)
            for record in found
            if record.status in ("running", "released")
        ]
        clock.tick(max([now + 1, *ends]) - now)


E = TypeVar("E", bound=Effect)


class Chaos:
    """A test bench for one handler: a store in memory, a clock that tests move, and effects.

    `chaos.once` is a `Once` on this bench; `chaos.use(once)` moves one of yours onto it.
    """

    def __init__(self) -> None:
        self.clock: Final = FakeClock()
        self._store: Final = ChaosStore(self.clock)
        self._effects: Final[dict[str, Effect]] = {}
        self._moved: Final[list[tuple[Core, dict[str, Any]]]] = []
        self._once: Once | None = None

    @property
    def once(self) -> Once:
        """A `Once` for handlers that are made inside the test."""
        if self._once is None:
            self._once = self.use(Once("memory://", observers=()))
        return self._once

    def use(self, once: Once) -> Once:
        """Move your own `Once`, and all that was made with it, to this store until `close`."""
        if not isinstance(once, Once):
            msg = f"use takes the Once that your code has, not {once!r}"
            raise ConfigurationError(msg)
        core = once.core
        store = cast("Store", self._store)  # its methods are made in a loop
        self._moved.append((core, dict(vars(core))))
        vars(core).update(
            _blocking=store,
            _awaiting=None,
            _behind=store,
            _breaker=Breaker(store),
            _engine=None,
            _engine_async=None,
            cache=None,
            flights=FlightsApart(),
        )
        return once

    def effect(
        self, name: str, function: Callable[..., Any] | None = None, *, key: str = "idempotency_key"
    ) -> Effect:
        """Declare something that must happen once. Call the effect in place of the real thing.

        It calls `function`, if there is one. An argument named `key` is an idempotency key.
        """
        return self._declared(Effect(checked_name(name), function, key))

    def effect_async(
        self, name: str, function: Callable[..., Any] | None = None, *, key: str = "idempotency_key"
    ) -> AsyncEffect:
        """Declare the same for code that awaits it."""
        return self._declared(AsyncEffect(checked_name(name), function, key))

    def _declared(self, effect: E) -> E:
        if effect.name in self._effects:
            msg = f"there is an effect {effect.name!r} already; each needs its own name"
            raise ConfigurationError(msg)
        self._effects[effect.name] = effect
        return effect

    def run(
        self,
        call: Callable[[], Any],
        *,
        reset: Callable[[], object] | None = None,
        busy: Callable[[Any], bool] | None = None,
    ) -> Report:
        """Run the call through every schedule. Raise `ChaosError` if anything goes wrong.

        `call` makes one call of your handler, and may be a coroutine function. What it returns must
        be the same for every caller. `reset` puts your own state back before each schedule; `busy`
        says which answers mean "ask again later", if that is not an exception.
        """
        if not callable(call):
            msg = f"run takes a function that calls your handler, not {call!r}"
            raise ConfigurationError(msg)
        if not self._effects:
            msg = "declare what must happen once first, as in chaos.effect('charge')"
            raise ConfigurationError(msg)
        playing = ScheduleRunner(
            call,
            self._store,
            self._effects,
            reset=reset or (lambda: None),
            busy=busy or (lambda _: False),
        )
        expected, points = playing.undisturbed()
        report = Report(expected, [playing.play(one, expected) for one in schedules(points)])
        if report.wrong:
            raise ChaosError(str(report))
        return report

    def close(self) -> None:
        """Give every `Once` its own store back."""
        while self._moved:
            core, before = self._moved.pop()
            vars(core).clear()
            vars(core).update(before)
