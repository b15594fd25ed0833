"""How blocking code on a thread sees the attempt of the coroutine that waits for it.

Frameworks of coroutines run blocking handlers on threads. `current()` gives them the attempt all
the same; what it tells the store goes through the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from oncekey.attempt import Attempt
from oncekey.attempt_async import AsyncAttempt
from oncekey.compat import running_loop
from oncekey.core.requests import Note, Release, Settle, Verdict
from oncekey.engine.engine_async import AsyncEngine
from oncekey.engine.ticket import Ticket

T = TypeVar("T")


def bridge(attempt: AsyncAttempt) -> None:
    """Blocking code that the running loop has sent to a thread may ask for the attempt."""
    loop = running_loop()
    attempt._bridge = partial(_SeenFromThread, attempt, loop)  # noqa: SLF001 - its other end


class _SeenFromThread(Attempt):
    """The same attempt: whatever is noted or ended here is noted and ended there."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, attempt: AsyncAttempt, loop: asyncio.AbstractEventLoop) -> None:
        self.__dict__ = attempt.__dict__  # one state, seen from two sides
        self._loop = loop

    @property
    def _engine(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - an engine in all that is asked of it
        """A property comes before what the shared state holds under this name."""
        return _ThroughLoop(self.__dict__["_engine"], self._loop)


class _ThroughLoop:
    """The engine of coroutines, for code that blocks."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop

    def note(self, ticket: Ticket, ask: Note) -> Verdict:
        return self._wait(self._engine.note(ticket, ask))

    def settle(self, ticket: Ticket, ask: Settle) -> bool:
        return self._wait(self._engine.settle(ticket, ask))

    def leave(self, ticket: Ticket, ask: Release) -> None:
        self._wait(self._engine.leave(ticket, ask))

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()
