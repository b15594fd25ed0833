"""Events in memory, for development, tests and the demo. They end with the process.

There is no router: appending an event also moves the state and wakes the readers.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Condition, Lock
from time import monotonic
from typing import Any, NamedTuple, Self

from oncekey.errors import ConfigurationError
from oncekey.events.cursor import Cursor, View
from oncekey.events.event import ALL_OF_TOPIC, Append, Published, topic_of
from oncekey.events.log import BUDGET, MOST_JOBS, Entry, JobState, LogFull, Look, Start
from oncekey.events.settings import BusSettings

_Name = tuple[str, str]


class _Marker(NamedTuple):
    offset: int
    mark: str
    digest: str


@dataclass
class _Job:
    epoch: str
    entries: deque[Entry]
    end: float = 0.0
    last: int = 0
    markers: dict[tuple[str, int], _Marker] = field(default_factory=dict)
    gone: int = -1
    """The greatest seq of an event that the log has dropped."""
    top: int = -1
    state: JobState | None = None
    state_end: float = 0.0

    @property
    def first(self) -> int:
        return self.entries[0].offset if self.entries else self.last + 1


class Memory:
    """Jobs of any number of domains. Sync and async buses may share one."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Start empty. `clock` counts seconds."""
        self.clock = clock
        self.lock = Lock()
        self.jobs: OrderedDict[_Name, _Job] = OrderedDict()
        self.ears: defaultdict[_Name, set[Callable[[], None]]] = defaultdict(set)


class MemoryLog:
    """One domain in a `Memory`."""

    def __init__(self, memory: Memory, settings: BusSettings) -> None:
        self._memory = memory
        self._settings = settings

    def append(self, asks: Sequence[Append], /) -> list[Published | LogFull]:
        """Append each event to its log, once."""
        with self._memory.lock:
            return [self._append(ask) for ask in asks]

    def look(self, job: str, _shard: int, start: Start, count: int, /) -> Look:
        """Return at most `count` events after the start, and fewer if they are large."""
        with self._memory.lock:
            found = self._living(job)
            if found is None:
                return Look(View(None, 1, 0, None), 0, [])
            offset = found.first - 1 if start.kind == "first" else start.number
            index = offset - found.first
            mark = found.entries[index].mark if 0 <= index < len(found.entries) else None
            entries, room = [], BUDGET
            for entry in islice(found.entries, max(0, index + 1), max(0, index + 1) + count):
                if room <= 0:
                    break
                entries.append(entry)
                room -= len(entry.payload)
            view = View(found.epoch, found.first, found.last, mark, found.gone)
            return Look(view, offset, entries)

    def state(self, job: str, _shard: int, /) -> JobState | None:
        """Return the event with the greatest seq, or None."""
        with self._memory.lock:
            found = self._living(job)
            alive = found is not None and self._memory.clock() < found.state_end
            return found.state if found is not None and alive else None

    def topic(self, topic: str, shard: int, /) -> list[str]:
        """Return the living jobs of a topic, or `MOST_JOBS` + 1 if there are more.

        All of them are in the first shard.
        """
        if shard:
            return []
        with self._memory.lock:
            now = self._memory.clock()
            found = (
                job
                for (domain, job), kept in reversed(self._memory.jobs.items())
                if domain == self._settings.domain and topic_of(job) == topic and now < kept.end
            )
            return list(islice(found, MOST_JOBS + 1))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def listening(self) -> MemoryListener:
        """Return what hears of jobs and topics."""
        return MemoryListener(self)

    @contextmanager
    def hearing(self, job: str, ear: Callable[[], None]) -> Iterator[None]:
        """Call the ear, in any thread, whenever the log has grown."""
        name = (self._settings.domain, job)
        with self._memory.lock:
            self._memory.ears[name].add(ear)
        try:
            yield
        finally:
            with self._memory.lock:
                self._memory.ears[name].discard(ear)
                if not self._memory.ears[name]:
                    del self._memory.ears[name]

    def _append(self, ask: Append) -> Published:
        job = self._living(ask.job) or _Job(ask.epoch, deque(maxlen=self._settings.log_length))
        marker = job.markers.get((ask.stage, ask.seq))
        if marker is not None:
            again = marker.mark != ask.mark
            differs = again and marker.digest != ask.digest
            return Published(marker.offset, job.epoch, again, differs)
        job.last += 1
        if len(job.entries) == self._settings.log_length:
            job.gone = max(job.gone, job.entries[0].seq)  # the deque drops it now
        payload = ask.payload
        job.entries.append(Entry(job.last, ask.mark, ask.seq, payload))
        job.markers[ask.stage, ask.seq] = _Marker(job.last, ask.mark, ask.digest)
        now = self._memory.clock()
        job.end = now + self._settings.marker_seconds
        if ask.seq > job.top:
            job.top, job.state_end = ask.seq, now + self._settings.state_seconds
            job.state = JobState(Cursor(job.epoch, job.last, ask.mark), payload)
        self._keep(ask.job, job, now)
        return Published(job.last, job.epoch, duplicate=False, differs=False)

    def _keep(self, job_id: str, job: _Job, now: float) -> None:
        """Move the job to the end, drop the oldest jobs that ran out, and wake the readers."""
        name, jobs = (self._settings.domain, job_id), self._memory.jobs
        jobs[name] = job
        jobs.move_to_end(name)
        while jobs[next(iter(jobs))].end <= now:
            jobs.popitem(last=False)
        ears = set(self._memory.ears.get(name, ()))
        if job.last == 1 and (topic := topic_of(job_id)) is not None:
            ears |= self._memory.ears.get((self._settings.domain, topic + ALL_OF_TOPIC), set())
        for ear in ears:
            ear()

    def _living(self, job: str) -> _Job | None:
        found = self._memory.jobs.get((self._settings.domain, job))
        return found if found is not None and self._memory.clock() < found.end else None


class MemoryListener:
    """What one thread hears of jobs and topics."""

    def __init__(self, log: MemoryLog) -> None:
        """Hear of nothing yet."""
        self._log = log
        self._opened: dict[str, ExitStack] = {}
        self._heard: set[str] = set()
        self._news = Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._opened.values():
            opened.close()

    def hear(self, name: str, _shard: int, /) -> None:
        """Hear of the job, or of all jobs of a topic."""
        if name not in self._opened:  # of a topic in another shard
            opened = self._opened[name] = ExitStack()
            opened.enter_context(self._log.hearing(name, partial(self._tell, name)))

    def ignore(self, name: str, _shard: int, /) -> None:
        """Hear of it no more."""
        self._opened.pop(name).close()

    def wait(self, seconds: float, /) -> set[str]:
        """Return what has grown, as soon as anything has, or nothing in time."""
        with self._news:
            self._news.wait_for(lambda: self._heard, seconds)
            heard, self._heard = self._heard, set()
        return heard

    def _tell(self, name: str) -> None:
        with self._news:
            self._heard.add(name)
            self._news.notify()


class AsyncMemoryLog:
    """The same for coroutines. No method ever waits."""

    def __init__(self, memory: Memory, settings: BusSettings) -> None:
        self._log = MemoryLog(memory, settings)

    @asynccontextmanager
    async def listening(
        self, name: str, shard: int, wake: Callable[[str], None], /
    ) -> AsyncIterator[None]:
        """Call `wake` whenever the log has grown, or a job of the topic has begun."""
        del shard  # a memory has none
        loop = asyncio.get_running_loop()

        def ear() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake, "")

        with self._log.hearing(name, ear):
            yield

    async def append(self, asks: Sequence[Append], /) -> list[Published | LogFull]:
        """Append each event to its log, once."""
        return self._log.append(asks)

    async def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Return at most `count` events after the start."""
        return self._log.look(job, shard, start, count)

    async def state(self, job: str, shard: int, /) -> JobState | None:
        """Return the event with the greatest seq, or None."""
        return self._log.state(job, shard)

    async def topic(self, topic: str, shard: int, /) -> list[str]:
        """Return the living jobs of a topic, or `MOST_JOBS` + 1 if there are more."""
        return self._log.topic(topic, shard)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


Where = Any
"""A URL (redis://, rediss://, unix://, memory://), a client of redis-py, or a `Memory`."""


def memory_of(where: Where) -> Memory | None:
    """Return the memory, or None if `where` is Redis. Raise ConfigurationError for another URL."""
    if isinstance(where, Memory):
        return where
    if where is None:
        raise ConfigurationError("the URL of a bus is None; it is that of a Redis, or memory://")
    if not isinstance(where, str):
        return None
    scheme = where.partition("://")[0]
    if scheme == "memory":
        if where != "memory://":
            msg = "a memory has no name; make one Memory() and give it to those who share it"
            raise ConfigurationError(msg)
        return Memory()
    if scheme not in ("redis", "rediss", "unix"):
        found = f"{scheme}://" if "://" in where else "so"  # the rest may hold a password
        msg = f"the URL of a bus starts with redis://, rediss://, unix:// or memory://, not {found}"
        raise ConfigurationError(msg)
    return None
