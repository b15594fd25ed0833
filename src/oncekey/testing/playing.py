"""How schedules are played: callers come, crash and come back, time passes, effects are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oncekey.core.requests import Scan
from oncekey.errors import (
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    OutcomeUnknownError,
    StoreError,
)
from oncekey.testing.caller import UNTRIED, Caller
from oncekey.testing.chaos_report import ChaosError, Row
from oncekey.testing.chaos_store import ChaosStore
from oncekey.testing.effects import Effect
from oncekey.testing.processes import PATIENCE, Crashed, Plan, Process
from oncekey.testing.schedules import Schedule

_A_MOMENT: Final = 0.002
_HEAD_START: Final = 0.03
"""Seconds that a second caller has while the first one stands still."""
_TRIES: Final = 10
_LEASES: Final = 4
"""How many leases pass after a crash: one for the lease itself, and more than two for `quiet`."""
_EVERYTHING: Final = 10_000
_LATER: Final = (InProgressError, LeaseLostError, NotRecordedError, StoreError)
_HANGS: Final = "it hangs"


class Playing:
    """One handler in one world, schedule after schedule."""

    def __init__(
        self,
        call: Callable[[], Any],
        store: ChaosStore,
        effects: dict[str, Effect],
        *,
        reset: Callable[[], object],
        busy: Callable[[Any], bool],
    ) -> None:
        """Nothing has been played yet."""
        self._call, self._store, self._effects = call, store, effects
        self._reset, self._busy = reset, busy
        self._processes = 0

    def undisturbed(self) -> tuple[dict[str, int], list[str]]:
        """How often each effect happens, and which points are passed, when nothing is wrong."""
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

    def play(self, schedule: Schedule, expected: dict[str, int]) -> Row:
        """One order of events, played and judged."""
        self._begin()
        row = Row(schedule.name)
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

    def _overlap(self, schedule: Schedule, first: Caller, row: Row) -> None:
        """While the first caller stands still, another one comes."""
        process = first.process
        while not process.paused.wait(_A_MOMENT) and not first.wait(0):
            """It is on its way."""
        second = Caller(self._call, self._process() if schedule.elsewhere else process)
        second.wait(_HEAD_START)
        process.go_on()
        if not (first.wait() and second.wait()):
            row.wrong.append(_HANGS)
        self._take(second, row)

    def _take(self, caller: Caller, row: Row) -> bool:
        """What a caller was told, if that is anything; whether it must ask again."""
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

    def _insist(self, process: Process | None, row: Row) -> None:
        """Somebody asks until there is an answer, and time passes between."""
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
    def _judge(row: Row, expected: dict[str, int]) -> None:
        for name, wanted in expected.items():
            count = row.counts[name]
            if count > wanted:
                row.wrong.append(f"{name} happened {count} times")
            elif count < wanted and not row.held:
                row.wrong.append(f"{name} did not happen")
        told = row.answers
        if any(answer != told[0] for answer in told[1:]):
            row.wrong.append(f"two answers: {told[0]!r} and {told[-1]!r}")

    # The world

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
        """Every lease is over, and so is the time in which a dead attempt's request may arrive."""
        clock = self._store.clock
        now = clock()
        found = self._store.records.scan(Scan(limit=_EVERYTHING)).records
        ends = [
            record.lease_end + _LEASES * max(0, record.lease_end - record.updated)
            for record in found
            if record.status in ("running", "released")
        ]
        clock.tick(max([now + 1, *ends]) - now)
