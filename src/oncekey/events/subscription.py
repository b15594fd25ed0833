"""Followers of jobs. All followers of one job share a reader, so its log is read only once."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from oncekey.compat import running_loop
from oncekey.errors import StoreError
from oncekey.events import sse
from oncekey.events.cursor import START, Cursor, Resync
from oncekey.events.event import Event, shard_of
from oncekey.events.log import BUDGET, LIMIT, AsyncEventLog, Entry, Part, Position, decoded
from oncekey.events.observers import EventObservers

# What was read, as it is sent. Events are decoded only for those who want them so.


class Framed(NamedTuple):
    """An event as a server-sent event."""

    offset: int
    mark: str
    seq: int
    frame: bytes


class Batch:
    """What was read at once. All followers that get it share one object."""

    def __init__(
        self, job: str, epoch: str, framed: list[Framed], resync: Resync | None = None
    ) -> None:
        """Take what was read. A resync comes before the events."""
        self.resync = resync
        self.size = sum(len(one.frame) for one in framed)
        self.epoch = epoch
        self.framed = framed
        self._job = job

    def __len__(self) -> int:
        return len(self.framed)

    @property
    def before(self) -> Cursor:
        """The place before the events."""
        return Cursor(self.epoch, self.framed[0].offset - 1) if self.framed else START

    @cached_property
    def frames(self) -> bytes:
        """All of it as server-sent events."""
        frames = b"".join(one.frame for one in self.framed)
        if self.resync is None:
            return frames
        return sse.resync_frame(self.resync, self.before) + frames

    @cached_property
    def events(self) -> list[Event]:
        """The events. Raise UnreadableError if one is none."""
        return [
            decoded(self._job, sse.data_of(frame), Cursor(self.epoch, offset, mark))
            for offset, mark, _, frame in self.framed
        ]


class _Run:
    """The newest frames of a log that were read, without a gap."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.frames: dict[int, Framed] = {}
        self.first = self.last = 0
        self.size = 0

    def put(self, framed: Iterable[Framed]) -> None:
        """Add frames that follow each other, as long as there is no gap between them and the rest.

        Those that came before have other marks if a server lost some events: then drop the rest.
        """
        for one in framed:
            known = self.frames.get(one.offset)
            if known is not None and known.mark != one.mark:
                self._clear()
            if known is not None and self.frames:
                continue
            if self.frames and one.offset != self.last + 1:
                if one.offset < self.first:
                    continue  # see `put_before`
                self._clear()
            if not self.frames:
                self.first = one.offset
            self.last = one.offset
            self._keep(one)
        while self.size > _RUN and len(self.frames) > 1:
            self._drop(self.first)
            self.first += 1

    def put_before(self, framed: list[Framed]) -> None:
        """Add frames that end where the others start, as far as there is room."""
        for one in reversed(framed):
            if one.offset == self.first - 1 and self.size + len(one.frame) <= _RUN:
                self.first = one.offset
                self._keep(one)

    def end_at(self, offset: int) -> None:
        """Drop what follows this offset: a server has lost it."""
        while self.frames and self.last > offset:
            self._drop(self.last)
            self.last -= 1

    def after(self, cursor: Cursor) -> list[Framed]:
        """Return what follows the event at the cursor, as much as fits on a page."""
        known = self.frames.get(cursor.offset)
        if cursor.epoch != self.epoch or known is None or known.mark != cursor.mark:
            return []
        found: list[Framed] = []
        room = BUDGET
        for offset in range(cursor.offset + 1, min(self.last, cursor.offset + LIMIT) + 1):
            if room <= 0:
                break
            found.append(self.frames[offset])
            room -= len(found[-1].frame)
        return found

    def _keep(self, one: Framed) -> None:
        self.frames[one.offset] = one
        self.size += len(one.frame)

    def _drop(self, offset: int) -> None:
        self.size -= len(self.frames.pop(offset).frame)

    def _clear(self) -> None:
        self.frames.clear()
        self.size = 0


_RUN: Final = 4 * BUDGET
"""The bytes of frames that are kept of one job."""
_ALL: Final = 32 * BUDGET
"""The bytes of frames that are kept of all jobs that are followed."""


class FrameCache:
    """The newest frames of the jobs that are followed, by job, epoch and offset."""

    def __init__(self) -> None:
        """Start empty."""
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        self._size = 0

    def after(self, job: str, cursor: Cursor | None) -> list[Framed]:
        """Return what follows the event at the cursor, or nothing if it is not here."""
        run = self._runs.get(job)
        return [] if run is None or cursor is None else run.after(cursor)

    def missing(self, job: str, cursor: Cursor | None) -> int:
        """Return how many events lie between the cursor and what is here, 0 if nothing is."""
        run = self._runs.get(job)
        if run is None or not run.frames or (cursor is not None and cursor.epoch != run.epoch):
            return 0
        return max(0, run.first - 1 - (0 if cursor is None else cursor.offset))

    def put(self, job: str, epoch: str, framed: list[Framed]) -> None:
        """Keep what was read just now."""
        if not framed:
            return
        run = self._runs.get(job)
        if run is None or run.epoch != epoch:
            self.forget(job)
            run = self._runs[job] = _Run(epoch)
        self._runs.move_to_end(job)
        self._size -= run.size
        if run.frames and framed[-1].offset == run.first - 1:
            run.put_before(framed)
        else:
            run.put(framed)
        self._size += run.size
        while len(self._runs) > 1 and self._size > _ALL:
            self.forget(next(iter(self._runs)))

    def end_at(self, job: str, cursor: Cursor) -> None:
        """Drop what follows the event at the cursor, which is the last one of the log."""
        run = self._runs.get(job)
        if run is not None and run.epoch == cursor.epoch and run.last > cursor.offset:
            self._size -= run.size
            run.end_at(cursor.offset)
            self._size += run.size

    def forget(self, job: str) -> None:
        """Drop what is here of a job that nobody follows any more."""
        run = self._runs.pop(job, None)
        self._size -= 0 if run is None else run.size


# A follower of a job, with a bounded queue of what was read for it.


class Room:
    """The room for what waits: one page, `most` events or 1 MiB. Several followers may share it."""

    def __init__(self, most: int, wake: Callable[[], None] | None = None) -> None:
        """Start empty. `wake` is called when something waits."""
        self.wake = wake
        self._most = most
        self._count = 0
        self._size = 0

    def fits(self, events: int, size: int) -> bool:
        """Return whether there is room for so much more. Anything fits if nothing waits."""
        if self._count == 0:
            return True
        return self._count + events <= self._most and self._size + size <= BUDGET

    def change(self, events: int, size: int) -> None:
        """Count what has come, or, below zero, what was taken."""
        self._count += events
        self._size += size


class Follower:
    """A place in the log, and a queue of what was read for it, as long as there is room."""

    def __init__(
        self, saw: Position, room: Room, enter: Callable[[Follower], None], *, ends: bool
    ) -> None:
        """Start at `saw`.

        `enter` registers the follower for reading. With `ends`, a follower that is too slow gets
        nothing more.
        """
        self.saw = saw
        self.fresh = True
        """Whether its place was not compared with the log yet."""
        self.slow = False
        """Whether it was too slow. Its queue is dropped then; its place is where it stopped."""
        self._room = room
        self._enter = enter
        self._ends = ends
        self._batches: list[Batch] = []
        self._count = 0
        self._size = 0
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
        return self.take()

    def take(self) -> list[Batch]:
        """Return the batches that wait, without waiting. Raise as `batches` does."""
        taken = self._batches
        self._empty()
        if self._apart:
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

    def leave(self) -> None:
        """Drop what waits."""
        self._apart = False
        self._empty()

    def hand(self, batch: Batch, then: Position, *, more: bool) -> bool:
        """Queue the batch. Return whether the follower goes on with the others from `then`.

        It does not if there is `more` than a page, or if its queue is full. It then registers
        itself again when it has taken what is in its queue.
        """
        events = max(1, len(batch))
        if not self._room.fits(events, batch.size):
            if self._ends:
                self.slow = True
                self._empty()
                self._rouse()
            else:
                self._apart = True
            return False
        self.saw, self.fresh = then, False
        self._batches.append(batch)
        self._count += events
        self._size += batch.size
        self._room.change(events, batch.size)
        self._rouse()
        self._apart = more
        return not more

    def _empty(self) -> None:
        self._room.change(-self._count, -self._size)
        self._batches, self._count, self._size = [], 0, 0

    def _rouse(self) -> None:
        if self._room.wake is not None:
            self._room.wake()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


# All followers of one job share a reader, so that its log is read once for all of them.
#
# Each follower has its own place in the log, and gets only what was read from exactly there.
# Followers at the same place are read for together. A new follower starts at its own place, and
# joins the others as soon as it has what they have. So nothing is missed, and nothing comes twice.
# Those who are ahead are read for first, so that many who come back do not hold them up.


PATIENCE: Final = 5.0
"""Seconds after which a reader that is not woken looks at the log by itself."""
_SHORTEST_PAUSE: Final = 0.05
_log = logging.getLogger("oncekey.events")

Read = Callable[[str, Position, int], Awaitable[Part]]


class Following:
    """The readers of a bus, one for each job that is followed on an event loop."""

    def __init__(
        self, log: AsyncEventLog, read: Read, shards: int, observers: EventObservers
    ) -> None:
        """Start without readers. `read` returns a part of at most the given number of events."""
        self._log = log
        self._read = read
        self._shards = shards
        self._observers = observers
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Reader]] = (
            WeakKeyDictionary()
        )
        self._caches: WeakKeyDictionary[asyncio.AbstractEventLoop, FrameCache] = WeakKeyDictionary()

    @asynccontextmanager
    async def __call__(
        self, job: str, saw: Position, queue: int | None = None, *, room: Room | None = None
    ) -> AsyncIterator[Follower]:
        """Yield a follower that gets every event after what it saw.

        With `queue`, a follower with more waiting events than that is `slow` and gets nothing more.
        Without it, the follower is read for again when it has taken what is in its queue, which
        may share its `room` with others.
        """
        loop = asyncio.get_running_loop()
        readers = self._loops.setdefault(loop, {})
        cache = self._caches.setdefault(loop, FrameCache())
        reader = readers.get(job)
        if reader is None:
            shard = shard_of(job, self._shards)
            reader = readers[job] = _Reader(
                self._log, self._read, (job, shard), cache, self._observers
            )
        room = Room(LIMIT if queue is None else queue) if room is None else room
        follower = Follower(saw, room, reader.enter, ends=queue is not None)
        reader.join(follower)
        try:
            yield follower
        finally:
            reader.leave(follower)
            follower.leave()
            if not reader.followers:
                del readers[job]  # before anything is awaited: a new follower gets a new reader
                cache.forget(job)
                await reader.end()


class _Reader:
    """A task that reads the log of one job for all followers that are ready for more."""

    def __init__(
        self,
        log: AsyncEventLog,
        read: Read,
        job: tuple[str, int],
        cache: FrameCache,
        observers: EventObservers,
    ) -> None:
        self.followers: set[Follower] = set()
        self._log = log
        self._read = read
        self._job, self._shard = job
        self._cache = cache
        self._observers = observers
        self._at: dict[Position, set[Follower]] = {}
        self._due: set[Position] = set()
        """The places from which the log is to be read now."""
        self._order: list[tuple[int, int, Position]] = []
        """The same as a heap, the newest first."""
        self._numbers = count()
        self._news = True
        """Whether the log may have grown since it was read last."""
        self._tip = ""
        """The id of the newest event that was read."""
        self._at_end = False
        """Whether the log was read to its end since it may have grown."""
        self._sleep: asyncio.Future[None] | None = None
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
        self._add(follower.saw)
        if self._broken is not None:
            follower.fail(self._broken)
        self._rouse()

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
            async with self._log.listening(self._job, self._shard, self._wake):
                await self._read_on()
        except Exception as error:  # noqa: BLE001 - handed to those who follow
            self._broken = error
            for follower in self.followers:
                follower.fail(error)

    def _wake(self, newest: str) -> None:
        if not newest or newest != self._tip:  # the publisher and the router may tell the same
            self._news = True
            self._rouse()

    def _rouse(self) -> None:
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def _add(self, saw: Position) -> None:
        """Read from this place, before those that are older."""
        if saw not in self._due:
            self._due.add(saw)
            offset = 0 if saw.cursor is None else saw.cursor.offset
            heappush(self._order, (-offset, next(self._numbers), saw))

    async def _read_on(self) -> None:
        pause = _SHORTEST_PAUSE
        while self.followers:
            if self._news:
                self._news = False  # before the log is read: what comes after that is heard
                self._at_end = False
                for saw in self._at:
                    self._add(saw)
            if not self._due:
                await self._woken()
                continue
            saw = heappop(self._order)[-1]
            self._due.remove(saw)
            try:
                if saw in self._at:
                    await self._read_for(saw)
            except StoreError as error:
                if pause == _SHORTEST_PAUSE:
                    _log.warning("a subscription waits for its store: %s", error)
                self._add(saw)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PATIENCE)
                continue
            pause = _SHORTEST_PAUSE

    async def _woken(self) -> None:
        """Wait until somebody enters or the log has grown, or for so long that it may have."""
        self._sleep = running_loop().create_future()
        try:
            async with asyncio.timeout(PATIENCE):
                await self._sleep
        except TimeoutError:
            self._news = True
        finally:
            self._sleep = None

    async def _read_for(self, saw: Position) -> None:
        """Read what comes after this place for all followers that are there."""
        if self._has_cached(saw):
            await asyncio.sleep(0)  # others have their turn
            return
        try:
            part = await self._read(self._job, saw, self._limit(saw))
            framed = [_framed(self._job, part.epoch, entry) for entry in part.entries]
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - handed to those whom it concerns
            for follower in self._at.pop(saw, set()):
                follower.fail(error)
            return
        if not part.more and part.position.cursor is not None:
            self._tip = str(part.position.cursor)
            self._cache.end_at(self._job, part.position.cursor)
        self._at_end = self._at_end or not part.more
        if part.position.above is None and saw.above is None:
            self._cache.put(self._job, part.epoch, framed)
        if framed or part.resync is not None:
            batch = Batch(self._job, part.epoch, framed, part.resync)
            self._hand(saw, batch, part.position, more=part.more)
        elif part.position != saw:  # nothing that they want
            together = self._at.pop(saw, set())
            for follower in together:
                follower.saw = part.position
            self._at.setdefault(part.position, set()).update(together)
            self._add(part.position)

    def _limit(self, saw: Position) -> int:
        """Return how many events to read: not those that were read for others."""
        if saw.above is not None or saw.foreign:
            return LIMIT
        if saw.cursor is not None and self._cache.after(self._job, saw.cursor):
            return 1  # of a new follower, whose place is to be compared with the log
        return min(LIMIT, self._cache.missing(self._job, saw.cursor) or LIMIT)

    def _has_cached(self, saw: Position) -> bool:
        """Hand over what was read for others, if it follows this place. Return whether it does."""
        if saw.above is not None or saw.cursor is None or any(one.fresh for one in self._at[saw]):
            return False
        found = self._cache.after(self._job, saw.cursor)
        if not found:
            return False
        epoch, last = saw.cursor.epoch, found[-1]
        then = Cursor(epoch, last.offset, last.mark)
        more = bool(self._cache.after(self._job, then))
        self._hand(saw, Batch(self._job, epoch, found), Position(then), more=more)
        if not (more or self._at_end):  # nobody was there to read what came last
            self._add(Position(then))
        return True

    def _hand(self, saw: Position, batch: Batch, then: Position, *, more: bool) -> None:
        together = self._at.pop(saw, set())
        ready = {one for one in together if one.hand(batch, then, more=more)}
        if ready:
            self._at.setdefault(then, set()).update(ready)
        if batch.resync is not None:
            self._observers.tell("resync", len(together), batch.resync.reason)
        self._observers.tell("slow", sum(one.slow for one in together))


def _framed(job: str, epoch: str, entry: Entry) -> Framed:
    cursor = Cursor(epoch, entry.offset, entry.mark)
    frame = sse.event_frame(job, entry.payload, cursor)
    return Framed(entry.offset, entry.mark, entry.seq, frame)
