"""Those who follow one job share a reader: its log is read once for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Final
from weakref import WeakKeyDictionary

from oncekey.compat import running_loop
from oncekey.errors import StoreError
from oncekey.events import sse
from oncekey.events.cursor import Resync
from oncekey.events.event import Event, shard_of
from oncekey.events.log import LIMIT, AsyncEventLog, Page, Position
from oncekey.events.observers import Observers

# One who follows a job: what was read for it and waits, within bounds, until it is taken.


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


# Those who follow one job share a reader: its log is read once for all of them.
#
# Each has its own place in the log, and gets only what was read from exactly there. Those who stand
# at one place are read for together. Whoever joins comes with a place of its own, and stands with
# the others as soon as it has what they have: so nothing is missed there, and nothing comes twice.


PATIENCE: Final = 5.0
"""How long a reader that is not woken waits before it looks by itself, in seconds."""
_SHORTEST_PAUSE: Final = 0.05
_log = logging.getLogger("oncekey.events")

Read = Callable[[str, Position, int], Awaitable[Page]]


class Following:
    """The readers of a bus, one for each job that is followed on an event loop."""

    def __init__(self, log: AsyncEventLog, read: Read, shards: int, observers: Observers) -> None:
        """`read` gives a page of at most so many events."""
        self._log = log
        self._read = read
        self._shards = shards
        self._observers = observers
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Reader]] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def __call__(
        self, job: str, saw: Position, queue: int | None = None
    ) -> AsyncIterator[Follower]:
        """In the block the follower is handed every event after what it saw.

        With `queue`, one for whom more events would wait than that is told to start anew, and gets
        nothing more. Without, it is read for again when it has taken what it was handed.
        """
        readers = self._loops.setdefault(asyncio.get_running_loop(), {})
        reader = readers.get(job)
        if reader is None:
            shard = shard_of(job, self._shards)
            reader = readers[job] = _Reader(self._log, self._read, (job, shard), self._observers)
        most = LIMIT if queue is None else queue
        follower = Follower(saw, most, reader.enter, ends=queue is not None)
        reader.join(follower)
        try:
            yield follower
        finally:
            reader.leave(follower)
            if not reader.followers:
                del readers[job]  # before anything is awaited: whoever comes now has a new one
                await reader.end()


class _Reader:
    """A task that reads the log of one job for whoever is ready for more."""

    def __init__(
        self, log: AsyncEventLog, read: Read, job: tuple[str, int], observers: Observers
    ) -> None:
        self.followers: set[Follower] = set()
        self._log = log
        self._read = read
        self._job, self._shard = job
        self._observers = observers
        self._at: dict[Position, set[Follower]] = {}
        self._heard: asyncio.Event | None = None
        self._broken: Exception | None = None
        self._task = asyncio.create_task(self._run())

    def join(self, follower: Follower) -> None:
        """It is read for until it leaves."""
        self.followers.add(follower)
        self.enter(follower)
        self._observers.tell("joined")

    def enter(self, follower: Follower) -> None:
        """It is ready for what comes after its place."""
        self._at.setdefault(follower.saw, set()).add(follower)
        if self._broken is not None:
            follower.fail(self._broken)
        elif self._heard is not None:
            self._heard.set()

    def leave(self, follower: Follower) -> None:
        """It is handed nothing more."""
        self.followers.discard(follower)
        together = self._at.get(follower.saw, set())
        together.discard(follower)
        if not together:
            self._at.pop(follower.saw, None)
        self._observers.tell("left")

    async def end(self) -> None:
        """Nothing more is read, and nobody listens."""
        while not self._task.done():  # redis-py on Python 3.11 may swallow a cancellation
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1.0)

    async def _run(self) -> None:
        try:
            async with self._log.listening(self._job, self._shard) as heard:
                self._heard = heard
                await self._read_on(heard)
        except Exception as error:  # noqa: BLE001 - handed to those who follow
            self._broken = error
            for follower in self.followers:
                follower.fail(error)

    async def _read_on(self, heard: asyncio.Event) -> None:
        pause = _SHORTEST_PAUSE
        while self.followers:
            heard.clear()  # before the log is read: what comes after that is heard
            try:
                for saw in list(self._at):
                    await self._read_for(saw)
            except StoreError as error:
                if pause == _SHORTEST_PAUSE:
                    _log.warning("a subscription waits for its store: %s", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PATIENCE)
                continue
            pause = _SHORTEST_PAUSE
            if self.followers:  # while it read, the last one may have left
                await _woken(heard)

    async def _read_for(self, saw: Position) -> None:
        """Those who stand there have what comes next, up to a page."""
        try:
            page = await self._read(self._job, saw, LIMIT)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - handed to those whom it concerns
            for follower in self._at.pop(saw, set()):
                follower.fail(error)
            return
        if not page.events and page.resync is None:
            return
        batch, then = Batch(page.events, page.resync), Position(page.cursor)
        more = len(page.events) >= LIMIT
        together = self._at.pop(saw, set())
        ready = {one for one in together if one.hand(batch, then, more=more)}
        if ready:
            self._at.setdefault(then, set()).update(ready)
        if page.resync is not None:
            self._observers.tell("resync", len(together), page.resync.reason)
        self._observers.tell("resync", sum(one.slow for one in together), "slow")


async def _woken(heard: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await heard.wait()
    except TimeoutError:
        pass
