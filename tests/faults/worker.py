"""A process that makes many protected calls and asks again until each is answered.

python -m tests.faults.worker FAIL_MODE COLOUR PLACE FOLDER NAME KEYS OUTAGES. In the folder all
processes find the ledger, which has a line for every effect and prevents none, and `troubles`,
which has one for every refusal; `down.N` is there when the server is gone for the Nth time, and
`go.N` when what began meanwhile may end.
"""

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from oncekey import (
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    StoreError,
    current,
    current_async,
)
from oncekey.engine import engine, engine_async
from oncekey.policy import FailMode
from tests.faults.calls import Calls

CALLERS = 6
TROUBLES = (StoreError, NotRecordedError, InProgressError, LeaseLostError)
A_MOMENT = 0.01
SETTLING = 0.1  # an outage shall outlast those who wait for their settle


class Threads(Calls):
    """Every caller is a thread."""

    def ask(self, key: str, sign: str = "") -> None:
        while True:
            try:
                self.answers[key] = self.once.run(key, self.work, key, sign)
            except TROUBLES as error:
                self.refused(error)
                time.sleep(A_MOMENT)
            else:
                return

    def work(self, key: str, sign: str) -> str:
        answer = self.effect(key, protected=current().protected)
        self.wait(sign)
        return answer

    def wait(self, sign: str) -> None:
        while sign and not self.there(sign):
            time.sleep(A_MOMENT)

    def meet(self, outages: int) -> None:
        """One call whose code is running when the server goes, or when it returns."""
        for number in range(outages):
            if self.mode == "open":
                self.wait(f"down.{number}")
            sign = f"{'go' if self.mode == 'open' else 'down'}.{number}"
            self.ask(f"outage:{number}:{self.name}", sign)

    def run(self, outages: int) -> None:
        with ThreadPoolExecutor(CALLERS + 1) as pool:
            meeting = pool.submit(self.meet, outages)
            list(pool.map(self.ask, self.keys))
            meeting.result()


class Tasks(Calls):
    """Every caller is a task of one event loop."""

    async def ask(self, key: str, sign: str = "") -> None:
        while True:
            try:
                self.answers[key] = await self.once.run_async(key, self.work, key, sign)
            except TROUBLES as error:
                self.refused(error)
                await asyncio.sleep(A_MOMENT)
            else:
                return

    async def work(self, key: str, sign: str) -> str:
        answer = self.effect(key, protected=current_async().protected)
        await self.wait(sign)
        return answer

    async def wait(self, sign: str) -> None:
        while sign and not self.there(sign):  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(A_MOMENT)

    async def meet(self, outages: int) -> None:
        for number in range(outages):
            if self.mode == "open":
                await self.wait(f"down.{number}")
            sign = f"{'go' if self.mode == 'open' else 'down'}.{number}"
            await self.ask(f"outage:{number}:{self.name}", sign)

    async def some(self, left: list[str]) -> None:
        while left:
            await self.ask(left.pop())

    async def all(self, outages: int) -> None:
        left = list(self.keys)
        await asyncio.gather(self.meet(outages), *(self.some(left) for _ in range(CALLERS)))
        await self.once.aclose()

    def run(self, outages: int) -> None:
        asyncio.run(self.all(outages))


def main(mode: FailMode, colour: str, *where: str) -> None:
    for module in (engine, engine_async):
        vars(module)["SETTLE_PATIENCE"] = SETTLING
    place, folder, name, keys, outages = where
    kind: type[Calls] = Threads if colour == "threads" else Tasks
    calls = kind(mode, place, folder, name, keys=int(keys))
    calls.run(int(outages))
    calls.report()
    sys.stdin.readline()  # until then the keeper can do what is left to do


if __name__ == "__main__":
    main(sys.argv[1], *sys.argv[2:])  # type: ignore[arg-type]  # the test says open or closed
