"""A worker: callers that ask for keys in an order of their own until each is answered."""

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from oncekey import (
    ConfigurationError,
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    OutcomeUnknownError,
    StoreError,
)
from oncekey.engine import engine, engine_async
from oncekey.engine.keeper import keeper
from tests.faults.matrix.history import History, Kind, Line, now
from tests.faults.matrix.points import Failpoints
from tests.faults.matrix.spec import BLOCK, Spec
from tests.faults.matrix.surfaces import AWAITING, BLOCKING, Told, Work, made

A_MOMENT = 0.02
TROUBLES = (
    ConfigurationError,  # of a server that forbids for a while what it allowed
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    OutcomeUnknownError,
    StoreError,
)


class Worker:
    """What callers of both colours share."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.points = Failpoints(spec.fails, f"{spec.seed} {spec.name} {spec.life}")
        self.work = Work(spec, self.points)
        self.history = History(spec.folder, f"{spec.name}.{spec.life}")
        self._progress = Path(spec.folder) / f"progress.{spec.name}"
        self._next = self._resumed()
        self._mark = os.open(self._progress, os.O_CREAT | os.O_WRONLY, 0o644)
        self._keys = self._in_order()
        self._own: dict[int, Iterator[str]] = {}
        self._lock = threading.Lock()
        self._until = Path(spec.until) if spec.until else None

    def _resumed(self) -> int:
        """Where the life before this one was; what it had in hand is asked for again."""
        if not self._progress.exists():
            return 0
        return max(0, int(self._progress.read_text() or 0) - self.spec.callers)

    def _in_order(self) -> Iterator[str]:
        """Keys block by block, shuffled inside each, and in another way for each worker."""
        spec = self.spec
        while self._next < spec.keys:
            start = self._next - self._next % BLOCK
            block = list(range(start, min(start + BLOCK, spec.keys)))
            random.Random(f"{spec.seed} {spec.name} {start}").shuffle(block)  # noqa: S311 - no secret
            for key in block[self._next - start :]:
                self._next += 1
                yield f"k{spec.first + key}"

    def next_key(self, who: int) -> str | None:
        if self.spec.together:  # in the same order for everybody
            every = (f"k{self.spec.first + number}" for number in range(self.spec.keys))
            return next(self._own.setdefault(who, every), None)
        with self._lock:
            if self._until is not None and self._until.exists():
                return None
            key = next(self._keys, None)
            os.pwrite(self._mark, str(self._next).encode(), 0)
            return key

    def line(self, who: int, key: str, kind: Kind, **facts: object) -> None:
        name = f"{self.spec.name}.{self.spec.life}.{who}"
        self.history.write(Line(now(), name, key, kind, **facts))  # type: ignore[arg-type]  # as named

    def asking(self, who: int, key: str) -> None:
        """The caller asks, and nothing has happened for it yet."""
        made.set([])
        self.line(who, key, "invoke")

    def told(self, who: int, key: str, told: Told) -> None:
        self.points.passing("before_answer")
        self.line(who, key, "ok", value=told.value, ran=told.by_own_effect)

    def refused(self, who: int, key: str, error: Exception, give_up: float) -> bool:
        """What a refusal means; whether to ask again."""
        kind: Kind = "fail"
        value, why = "", type(error).__name__
        if isinstance(error, NotRecordedError):
            kind, value = "info", str(error.result or "")
        elif isinstance(error, LeaseLostError):
            kind = "info"
        again = not isinstance(error, OutcomeUnknownError)
        if again and time.monotonic() > give_up:
            why, again = "stuck", False
        self.line(who, key, kind, value=value, why=why, said=str(error)[:200])
        return again


def pause_after(error: Exception) -> float:
    """How long the caller waits before it asks again."""
    if isinstance(error, InProgressError):
        return min(error.retry_after or A_MOMENT, 0.1)
    return A_MOMENT


class Threads(Worker):
    """Every caller is a thread."""

    def run(self) -> None:
        ask = BLOCKING[self.spec.surface](self.work)

        def call(who: int) -> None:
            while (key := self.next_key(who)) is not None:
                give_up = time.monotonic() + self.spec.patience
                again = True
                while again:
                    self.asking(who, key)
                    try:
                        self.told(who, key, ask(key))
                        again = False
                    except TROUBLES as error:
                        again = self.refused(who, key, error, give_up)
                        time.sleep(pause_after(error))

        failed: list[BaseException] = []

        def caught(who: int) -> None:
            try:
                call(who)
            except BaseException as error:  # noqa: BLE001 - told by the thread that waits
                failed.append(error)

        threads = [
            threading.Thread(target=caught, args=(number,)) for number in range(self.spec.callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]


class Tasks(Worker):
    """Every caller is a task of one event loop."""

    def run(self) -> None:
        asyncio.run(self._all())

    async def _all(self) -> None:
        async with AsyncExitStack() as stack:
            ask = AWAITING[self.spec.surface](self.work, stack)

            async def call(who: int) -> None:
                while (key := self.next_key(who)) is not None:
                    give_up = time.monotonic() + self.spec.patience
                    again = True
                    while again:
                        self.asking(who, key)
                        try:
                            self.told(who, key, await ask(key))
                            again = False
                        except TROUBLES as error:
                            again = self.refused(who, key, error, give_up)
                            await asyncio.sleep(pause_after(error))

            async with asyncio.TaskGroup() as group:
                for number in range(self.spec.callers):
                    group.create_task(call(number))


def work(spec: Spec) -> None:
    """Every key is answered, or given up."""
    if spec.clock:
        _be_wrong_by(spec.clock)
    for module in (engine, engine_async):
        vars(module)["SETTLE_PATIENCE"] = spec.settle_patience
    worker = Threads(spec) if spec.surface in BLOCKING else Tasks(spec)
    worker.run()
    keeper.finish()  # what could not be settled yet is tried once more


def _be_wrong_by(seconds: float) -> None:
    """The wall clock of this process goes wrong; it jumps to and fro, too."""
    real, real_ns = time.time, time.time_ns

    def off() -> float:
        return seconds if int(time.monotonic() * 4) % 2 else -seconds

    time.time = lambda: real() + off()
    time.time_ns = lambda: real_ns() + int(off() * 1e9)
