"""Followers of jobs. All followers of one job share a reader, so its log is read only once."""

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
from oncekey.events.cursor import START, Cursor, Resync
from oncekey.events.event import Event, shard_of
from oncekey.events.log import LIMIT, AsyncEventLog, Page, Position
from oncekey.events.observers import EventObservers

# A follower of a job, with a bounded queue of what was read for it.


class Batch:
    """What was read at once. All followers that get it share one object."""

    def __init__(
        self, events: list[Event], resync: Resync | None = None, place: Cursor | None = None
    ) -> None:
        """Take what was read. A resync comes before the events; `place` is after them."""
        self.events = events
        self.resync = resync
        self._place = place

    @cached_property
    def frames(self) -> bytes:
        """All of it as server-sent events, encoded when first needed."""
        frames = b"".join(map(sse.event_frame, self.events))
        if self.resync is None:
            return frames
        before = self._place or START
        if self.events:
            first = self.events[0].cursor
            before = Cursor(first.epoch, first.offset - 1)
        return sse.resync_frame(self.resync, before) + frames


class Follower:
    """A place in the log, and a queue that holds at most one page or `most` events."""

    def __init__(
        self, saw: Position, most: int, enter: Callable[[Follower], None], *, ends: bool
    ) -> None:
        """Start at `saw`.

        `enter` registers the follower for reading. With `ends`, a follower that is too slow gets
        nothing more.
        """
        self.saw = saw
        self.slow = False
        """Whether it was too slow. Its queue is dropped then; its place is where it stopped."""
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
        """Wait for batches and return them. Return an empty list after `wake`, and if too slow.

        Raise the error given to `fail` when all batches before it are taken.
        """
        while not (self._batches or self._called or self.slow or self._error is not None):
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
            raise self._error.with_traceback(None)  # the same error is raised to all followers
        return taken

    def wake(self) -> None:
        """Make `batches` return."""
        self._called = True
        self._rouse()

    def fail(self, error: Exception) -> None:
        """Make `batches` raise the error when all batches before it are taken."""
        self._error = error
        self._rouse()

    def hand(self, batch: Batch, then: Position, *, more: bool) -> bool:
        """Queue the batch. Return whether the follower goes on with the others from `then`.

        It does not if there is `more` than a page, or if its queue is full. It then registers
        itself again when it has taken what is in its queue.
        """
        count = max(1, len(batch.events))
        if self._batches and self._count + count > self._most:
            if self._ends:
                self.slow, self._batches, self._count = True, [], 0
                self._rouse()
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


# All followers of one job share a reader, so that its log is read once for all of them.
#
# Each follower has its own place in the log, and gets only what was read from exactly there.
# Followers at the same place are read for together. A new follower starts at its own place, and
# joins the others as soon as it has what they have. So nothing is missed, and nothing comes twice.


PATIENCE: Final = 5.0
"""Seconds after which a reader that is not woken looks at the log by itself."""
_SHORTEST_PAUSE: Final = 0.05
_log = logging.getLogger("oncekey.events")

Read = Callable[[str, Position, int], Awaitable[Page]]


class Following:
    """The readers of a bus, one for each job that is followed on an event loop."""

    def __init__(
        self, log: AsyncEventLog, read: Read, shards: int, observers: EventObservers
    ) -> None:
        """Start without readers. `read` returns a page of at most the given number of events."""
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
        """Yield a follower that gets every event after what it saw.

        With `queue`, a follower with more waiting events than that is `slow` and gets nothing more.
        Without it, the follower is read for again when it has taken what is in its queue.
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
                del readers[job]  # before anything is awaited: a new follower gets a new reader
                await reader.end()


class _Reader:
    """A task that reads the log of one job for all followers that are ready for more."""

    def __init__(
        self, log: AsyncEventLog, read: Read, job: tuple[str, int], observers: EventObservers
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
        """Read for the follower until it leaves."""
        self.followers.add(follower)
        self.enter(follower)
        self._observers.tell("joined")

    def enter(self, follower: Follower) -> None:
        """Read what comes after the follower's place."""
        self._at.setdefault(follower.saw, set()).add(follower)
        if self._broken is not None:
            follower.fail(self._broken)
        elif self._heard is not None:
            self._heard.set()

    def leave(self, follower: Follower) -> None:
        """Stop reading for the follower."""
        self.followers.discard(follower)
        together = self._at.get(follower.saw, set())
        together.discard(follower)
        if not together:
            self._at.pop(follower.saw, None)
        self._observers.tell("left")

    async def end(self) -> None:
        """Stop reading and listening."""
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
            if self.followers:  # the last follower may have left during the read
                await _woken(heard)

    async def _read_for(self, saw: Position) -> None:
        """Read the next page after this place for all followers that are there."""
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
        batch, then = Batch(page.events, page.resync, page.cursor), Position(page.cursor)
        more = len(page.events) >= LIMIT
        together = self._at.pop(saw, set())
        ready = {one for one in together if one.hand(batch, then, more=more)}
        if ready:
            self._at.setdefault(then, set()).update(ready)
        if page.resync is not None:
            self._observers.tell("resync", len(together), page.resync.reason)
        self._observers.tell("slow", sum(one.slow for one in together))


async def _woken(heard: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await heard.wait()
    except TimeoutError:
        pass
