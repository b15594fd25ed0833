"""One who follows a job: what was read for it and waits, within bounds, until it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import Final

from oncekey.compat import running_loop
from oncekey.events import sse
from oncekey.events.cursor import Resync
from oncekey.events.event import Event
from oncekey.events.reading import Position


class Batch:
    """What was read at once: one object for all who are handed it."""

    def __init__(
        self, events: list[Event], resync: Resync | None = None, *, last: bool = False
    ) -> None:
        """A resync comes before the events. After the `last` batch nothing follows."""
        self.events = events
        self.resync = resync
        self.last = last

    @cached_property
    def frames(self) -> bytes:
        """All of it as server-sent events, encoded when first asked for."""
        told = b"" if self.resync is None else sse.resync_frame(self.resync)
        return told + b"".join(map(sse.event_frame, self.events))


_SLOW: Final = Batch([], Resync("slow"), last=True)


class Follower:
    """Its place in the log, and a queue that holds no more than one page or `most` events."""

    def __init__(
        self, saw: Position, most: int, enter: Callable[[Follower], None], *, ends: bool
    ) -> None:
        """`enter` has it read for; `ends`: one that is too slow is told so and gets no more."""
        self.saw = saw
        self.slow = False
        """Whether it was too slow. What waited for it is dropped, and one batch says so."""
        self._most = most
        self._enter = enter
        self._ends = ends
        self._batches: list[Batch] = []
        self._count = 0
        self._apart = False
        self._error: Exception | None = None
        self._called = False
        self._waiter: asyncio.Future[None] | None = None

    async def batches(self) -> list[Batch]:
        """What has come, as soon as something has. Nothing for one that was only woken."""
        while not (self._batches or self._called or self._error is not None):
            self._waiter = running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        self._called = False
        taken, self._batches, self._count = self._batches, [], 0
        if taken and self._apart:
            self._apart = False
            self._enter(self)
        if not taken and self._error is not None:
            raise self._error.with_traceback(None)  # it is the same for all
        return taken

    def wake(self) -> None:
        """`batches` returns."""
        self._called = True
        self._rouse()

    def fail(self, error: Exception) -> None:
        """`batches` raises it when everything before it is taken."""
        self._error = error
        self._rouse()

    def hand(self, batch: Batch, then: Position, *, more: bool) -> bool:
        """Whether it goes on with the others from `then`.

        It does not where there is `more` than a page, or no room: it comes by itself, when it has
        taken what it was handed.
        """
        count = max(1, len(batch.events))
        if self._batches and self._count + count > self._most:
            if self._ends:
                self.slow, self._batches, self._count = True, [_SLOW], 0
            else:
                self._apart = True
            return False
        self.saw = then
        self._batches.append(batch)
        self._count += count
        self._rouse()
        self._apart = more
        return not more

    def _rouse(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
