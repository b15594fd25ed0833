"""Several jobs that one client follows together, each from its own place, and those of topics.

The topic of a job is what stands before the first slash of its id: `order-42/pack` belongs to
`order-42`. `order-42/*` names all jobs of the topic, also those that begin later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, NamedTuple, Self
from weakref import WeakKeyDictionary

from oncekey.compat import running_loop
from oncekey.events.cursor import Cursor
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import ALL_OF_TOPIC, check_job, shard_of
from oncekey.events.log import LIMIT, MOST_JOBS, AsyncEventLog, Position, position
from oncekey.events.subscription import PATIENCE, Batch, Follower, Following, Room

_log = logging.getLogger("oncekey.events")


class JobsAndTopics(NamedTuple):
    """What a client wants to follow."""

    jobs: tuple[str, ...]
    topics: tuple[str, ...]


def names_of(names: Iterable[str]) -> JobsAndTopics:
    """Return the jobs and topics that these names mean, each once.

    Raise InvalidEventError if one of them is neither.
    """
    if isinstance(names, str):
        raise InvalidEventError(f"give a list of job ids and topics, such as [{names!r}]")
    jobs: dict[str, None] = {}
    topics: dict[str, None] = {}
    for name in names:
        if isinstance(name, str) and name.endswith(ALL_OF_TOPIC):
            topic = check_job(name.removesuffix(ALL_OF_TOPIC))
            if "/" in topic:
                msg = f"a topic is what stands before the first slash of a job id, not {topic!r}"
                raise InvalidEventError(msg)
            topics[topic] = None
        else:
            shard_of(check_job(name), 1)  # raises if it is no Unicode
            jobs[name] = None
    if not jobs and not topics:
        raise InvalidEventError("name at least one job or topic to follow")
    return JobsAndTopics(tuple(jobs), tuple(topics))


def places_of(after: Mapping[str, Cursor | str] | None) -> dict[str, Position]:
    """Return the place in each job of a client that saw these events last.

    Raise InvalidEventError if `after` is not by job.
    """
    if after is not None and not isinstance(after, Mapping):
        msg = f"after has the cursor of the last event by job id, such as {{'job-1': {after!r}}}"
        raise InvalidEventError(msg)
    return {job: position(cursor, None) for job, cursor in (after or {}).items()}


# The jobs of a topic are looked for once, for all who follow it.


class Topics:
    """The topics of a bus that are followed, each with a task that looks for its jobs."""

    def __init__(self, log: AsyncEventLog, shards: int) -> None:
        """Start without topics."""
        self._log = log
        self._shards = shards
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Topic]] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def __call__(self, name: str, wake: Callable[[], None]) -> AsyncIterator[_Topic]:
        """Yield the topic. Call `wake` whenever its jobs are others."""
        topics = self._loops.setdefault(asyncio.get_running_loop(), {})
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = _Topic(self._log, name, self._shards)
        topic.ears.append(wake)
        try:
            yield topic
        finally:
            topic.ears.remove(wake)
            if not topic.ears:
                del topics[name]
                await topic.end()


class _Topic:
    """A task that looks for the living jobs of one topic."""

    def __init__(self, log: AsyncEventLog, name: str, shards: int) -> None:
        self.jobs: frozenset[str] = frozenset()
        self.too_many = False
        self.ears: list[Callable[[], None]] = []
        self._log = log
        self._name = name
        self._shards = range(shards)
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def end(self) -> None:
        """Stop looking and listening."""
        while not self._task.done():  # redis-py on Python 3.11 may swallow a cancellation
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1.0)

    async def _run(self) -> None:
        async with AsyncExitStack() as opened:
            for shard in self._shards:
                listening = self._log.listening(self._name + ALL_OF_TOPIC, shard, self._wake)
                await opened.enter_async_context(listening)
            said = ""
            while True:
                self._news.clear()  # before we look: what comes after that is heard
                try:
                    await self._look()
                except Exception as error:  # noqa: BLE001 - whatever it is, we look again
                    if str(error) != said:  # once, however long it lasts
                        _log.warning("the jobs of topic %r cannot be read: %s", self._name, error)
                    said = str(error)
                    await asyncio.sleep(PATIENCE)
                    continue
                said = ""
                try:
                    async with asyncio.timeout(PATIENCE):
                        await self._news.wait()
                except TimeoutError:
                    continue

    def _wake(self, _newest: str) -> None:
        self._news.set()

    async def _look(self) -> None:
        found = frozenset(
            [job for shard in self._shards for job in await self._log.topic(self._name, shard)]
        )
        too_many = len(found) > MOST_JOBS
        if (found, too_many) != (self.jobs, self.too_many):
            self.jobs, self.too_many = found, too_many
            for ear in list(self.ears):
                ear()


# What one client follows.


class Change(NamedTuple):
    """What is new of a job."""

    job: str
    batch: Batch | None = None
    """Events, if there are some."""
    refused: Literal["forbidden", "unreadable", "too many"] | None = None
    """Why the job, or the topic, is not followed, if it is not."""


class Bundle:
    """The jobs and topics that one client follows, with one queue for all of them.

    `places` returns where a job starts. `allowed` is asked before anything of a job is handed over,
    and says for how many seconds the client may follow it; 0 or less is no.
    """

    def __init__(
        self,
        following: Following,
        topics: Topics,
        names: JobsAndTopics,
        places: Callable[[str], Position],
        *,
        allowed: Callable[[str], Awaitable[float]] | None = None,
        recheck: float = 0.0,
        queue: int = LIMIT,
    ) -> None:
        """Start with nothing. A job of a topic that is not allowed is asked for every `recheck`."""
        self._following = following
        self._open_topic = topics
        self._names = names
        self._places = places
        self._allowed = allowed
        self._recheck = recheck
        self._room = Room(queue, self.wake)
        self._jobs: dict[str, tuple[Follower, AsyncExitStack]] = {}
        self._due: dict[str, float] = {}
        """When to ask again whether a job is allowed."""
        self._broken: set[str] = set()
        """The jobs that cannot be read."""
        self._topics: dict[str, _Topic] = {}
        self._opened = AsyncExitStack()
        self._changes: list[Change] = []
        self._called = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entered:
            entered.push_async_callback(self._close)
            for job in self._names.jobs:
                if not await self._enter(job):
                    self._changes.append(Change(job, refused="forbidden"))
            for name in self._names.topics:
                topic = self._open_topic(name, self.wake)
                self._topics[name] = await self._opened.enter_async_context(topic)
            entered.pop_all()
        if self._changes:
            self.wake()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    @property
    def over(self) -> bool:
        """Whether nothing is followed and nothing will be."""
        return not self._jobs and not self._topics

    def wake(self) -> None:
        """Make `changes` return."""
        self._called.set()

    async def changes(self) -> list[Change]:
        """Wait for news and return them, in order for each job. Return nothing after `wake`.

        The first change of a job has no batch: it is followed from now on.
        """
        await self._called.wait()
        self._called.clear()
        await self._look_at_topics()
        found, self._changes = self._changes, []
        broken: list[str] = []
        for job, (follower, _) in self._jobs.items():  # at once, so that all who wait have room
            try:
                found += [Change(job, batch) for batch in follower.take()]
            except Exception:  # noqa: BLE001 - the other jobs go on
                _log.exception("job %r cannot be read, and is not followed any more", job)
                broken.append(job)
        for job in broken:
            await self._leave(job)
            self._broken.add(job)
            found.append(Change(job, refused="unreadable"))
        refused = await self._asked_again()
        found = [one for one in found if one.job not in refused]
        return found + [
            Change(job, refused="forbidden") for job in refused if job in self._names.jobs
        ]

    async def _look_at_topics(self) -> None:
        """Follow the jobs that have begun, and no longer those that have run out."""
        wanted: set[str] = set()
        for name, topic in list(self._topics.items()):
            if topic.too_many:
                del self._topics[name]
                _log.warning("topic %r has more than %d living jobs", name, MOST_JOBS)
                self._changes.append(Change(name + ALL_OF_TOPIC, refused="too many"))
            else:
                wanted |= topic.jobs
        for job in self._jobs.keys() - wanted - set(self._names.jobs):
            await self._leave(job)
        for job in self._due.keys() - self._jobs.keys() - wanted:
            del self._due[job]
        wanted -= self._jobs.keys() | self._due.keys() | self._broken | set(self._names.jobs)
        for job in sorted(wanted):
            await self._enter(job)

    async def _enter(self, job: str) -> bool:
        """Follow the job if that is allowed. Return whether it is."""
        left = None if self._allowed is None else await self._allowed(job)
        self._ask_in(job, left)
        if left is not None and left <= 0:
            return False
        opened = AsyncExitStack()
        following = self._following(job, self._places(job), room=self._room)
        self._jobs[job] = await opened.enter_async_context(following), opened
        self._changes.append(Change(job))
        return True

    async def _leave(self, job: str) -> None:
        _, opened = self._jobs.pop(job)
        self._due.pop(job, None)
        await opened.aclose()

    async def _asked_again(self) -> set[str]:
        """Return the jobs that are not allowed any more, and leave them."""
        now = running_loop().time()
        refused: set[str] = set()
        for job in [job for job, due in self._due.items() if due <= now]:
            if job not in self._jobs:  # of a topic, and not allowed so far
                del self._due[job]
                self.wake()
            elif self._allowed is not None:
                left = await self._allowed(job)
                if left <= 0:
                    await self._leave(job)
                    refused.add(job)
                self._ask_in(job, left)
        return refused

    def _ask_in(self, job: str, left: float | None) -> None:
        """Ask about the job again when it is time to. A named job that is refused stays so."""
        if left is None or (left <= 0 and job in self._names.jobs):
            return
        loop = running_loop()
        self._due[job] = loop.time() + (left if left > 0 else self._recheck)
        if self._timer is None or self._timer.cancelled() or self._due[job] < self._timer.when():
            self._set_timer(self._due[job])

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = running_loop().call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.wake()
        later = [due for due in self._due.values() if due > running_loop().time()]
        if later:
            self._set_timer(min(later))

    async def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for job in list(self._jobs):
            await self._leave(job)
        await self._opened.aclose()
