"""A caller of a handler: on a thread of its own, with a loop of its own where it needs one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

from oncekey.testing.processes import PATIENCE, Process, here

UNTRIED: Final = object()
"""What a caller was told that was told nothing."""


class Caller:
    """One call in one pretended process."""

    def __init__(self, call: Callable[[], Any], process: Process) -> None:
        """It has begun."""
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
            if self.process.alive:  # else nobody hears it
                self.answer = answer

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended within this time, or ever."""
        self._thread.join(PATIENCE if seconds is None else seconds)
        return not self._thread.is_alive()


async def _awaited(answer: Awaitable[Any]) -> Any:  # noqa: ANN401 - as the user's code answers
    return await answer
