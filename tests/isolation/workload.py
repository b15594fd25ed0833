"""Sixty-four tasks of one event loop, each with a key and an effect of its own.

One of them, the odd one, is made slow, large, poisoned or cut off. The other sixty-three must not
notice: none of them is lost, wrong, done twice, or kept waiting for it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

from oncekey import Once
from tests.patience import PATIENCE

CROWD = 64
ODD = 7
LARGE = "x" * (1 << 20)


class Workload:
    """All of them, and the ledger of what they really did."""

    def __init__(self, once: Once) -> None:
        self.once = once.options(max_result="2MiB", wait=PATIENCE)
        self.odd_once = self.once
        self.effects: Counter[int] = Counter()
        self.started = asyncio.Event()
        self.together: asyncio.Barrier | None = None
        self.settling: Callable[[], None] | None = None
        self._odd_gate: asyncio.Event | None = None
        self.odd_answer = f"answer {ODD}"
        self.tasks: list[asyncio.Task[str]] = []

    def meet(self, count: int = CROWD) -> None:
        """All of them have claimed before the first one settles."""
        self.together = asyncio.Barrier(count)

    def when_all_have_claimed(self, do: Callable[[], None]) -> None:
        """All of them have, and then this was done, before the first one settles."""
        self.meet()
        waiting = [do]
        self.settling = lambda: waiting.pop()() if waiting else None

    def hold_the_odd_one(self) -> asyncio.Event:
        """Its effect takes until the event is set."""
        self._odd_gate = asyncio.Event()
        return self._odd_gate

    async def effect(self, number: int) -> str:
        self.effects[number] += 1
        if self.together is not None:
            await self.together.wait()
            if self.settling is not None:
                self.settling()
        if number == ODD:
            self.started.set()
            if self._odd_gate is not None:
                await self._odd_gate.wait()
            return self.odd_answer
        return f"answer {number}"

    async def call(self, number: int) -> str:
        once = self.odd_once if number == ODD else self.once
        return await once.run_async(f"k{number}", self.effect, number)

    def start(self) -> None:
        """All tasks of the loop are there in one turn of it."""
        self.tasks = [asyncio.create_task(self.call(number)) for number in range(CROWD)]

    @property
    def odd(self) -> asyncio.Task[str]:
        return self.tasks[ODD]

    async def others_are_done(self) -> None:
        """The sixty-three have their answers; whatever holds up the odd one is still there."""
        others = [task for task in self.tasks if task is not self.odd]
        _, waiting = await asyncio.wait(others, timeout=PATIENCE)
        assert not waiting, f"{len(waiting)} neighbours wait for the odd one"
        expected = [f"answer {number}" for number in range(CROWD) if number != ODD]
        assert [task.result() for task in others] == expected

    async def odd_is_done(self) -> None:
        async with asyncio.timeout(PATIENCE):
            assert await self.odd == self.odd_answer

    async def all_are_done(self) -> None:
        await self.others_are_done()
        await self.odd_is_done()

    async def nothing_is_lost(self, stranger: Once) -> None:
        """Whoever asks again, from anywhere, hears the same; each effect happened once."""
        again = Workload(stranger)
        again.start()
        again.odd_answer = self.odd_answer
        await again.all_are_done()
        assert not again.effects
        assert self.effects == Counter(range(CROWD))
