"""The bus for coroutines: publish, read, follow, and get the state of a job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self, Unpack

from oncekey.errors import StoreError, UnreadableError, doubted
from oncekey.events.bundle import Bundle, Topics, names_of, places_of
from oncekey.events.cursor import Cursor, Resync
from oncekey.events.errors import partly, refused
from oncekey.events.event import (
    Append,
    Draft,
    Event,
    Published,
    check_job,
    check_same,
    prepare,
    read_event,
    shard_of,
)
from oncekey.events.log import (
    FIRST,
    FROM_START,
    LIMIT,
    AsyncEventLog,
    LogFull,
    Page,
    Part,
    Position,
    check_limit,
    part,
    position,
    verdict,
)
from oncekey.events.memory import AsyncMemoryLog, Where, memory_of
from oncekey.events.observers import EventObservers, Observer
from oncekey.events.settings import BusOptions, BusSettings, settings_of
from oncekey.events.stages import Stages
from oncekey.events.subscription import Following
from oncekey.extras import needing

if False:  # sync only
    from collections.abc import Generator
    from contextlib import closing

    from oncekey.events.bundle import JobsAndTopics
    from oncekey.events.tail import Tail


class AsyncBus:
    """The events of one domain, for coroutines."""

    def __init__(
        self,
        where: Where,
        *,
        domain: str,
        stages: Stages | None = None,
        observers: Iterable[Observer] = (),
        **options: Unpack[BusOptions],
    ) -> None:
        """Check the settings. Nothing is sent yet.

        `where` is a URL, a client of redis.asyncio, or a `Memory`.
        """
        self.settings = settings_of(domain, stages, options)
        self._observers = EventObservers(self.settings.domain, observers)
        self._log = open_log_async(where, self.settings, self._observers)
        # async only
        read = partial(self._read, watch=True)
        # async only
        self.following = Following(self._log, read, self.settings.shards, self._observers)
        # async only
        self.topics = Topics(self._log, self.settings.shards)

    # async only
    def subscribe(
        self, job: str, *, after: Cursor | str | None = None, last_seq: int | None = None
    ) -> AsyncGenerator[Event | Resync, None]:
        """Yield every event of the job after the last one seen, in order, once, without end.

        A `Resync` among them says that the reader's place is not in the log: drop what was read
        before; what follows is the log from its oldest event on. While Redis is away the iterator
        waits. It does not end by itself: close it, or leave the loop.
        """
        return self.follow(check_job(job), position(after, last_seq))

    # async only
    async def follow(self, job: str, saw: Position) -> AsyncGenerator[Event | Resync, None]:
        """Do the same for a job and a position that are already checked."""
        async with self.following(job, saw) as follower:
            while True:
                for batch in await follower.batches():
                    if batch.resync is not None:
                        yield batch.resync
                    for event in batch.events:
                        yield event

    # async only
    def subscribe_many(
        self, names: Iterable[str], *, after: Mapping[str, Cursor | str] | None = None
    ) -> AsyncGenerator[tuple[str, Event | Resync], None]:
        """Yield every event of several jobs, each with the id of its job, without end.

        A name is a job id, or a topic with a star such as "order-42/*": all jobs whose id starts
        with "order-42/", also those that begin later. `after` has the cursor of the last event seen
        of each job; the others start at their beginning. The events of one job are in order and
        come once. A `Resync` is about its job alone. Raise UnreadableError if a job cannot be read.
        """
        wanted = names_of(names)
        places = places_of(after)
        bundle = Bundle(
            self.following, self.topics, wanted, lambda job: places.get(job, FROM_START)
        )
        return self._follow_many(bundle, places)

    # async only
    async def _follow_many(
        self, bundle: Bundle, places: dict[str, Position]
    ) -> AsyncGenerator[tuple[str, Event | Resync], None]:
        async with bundle:
            while True:
                for job, batch, refused in await bundle.changes():
                    if refused is not None:
                        raise UnreadableError(f"{job!r} cannot be followed: {refused}", key=job)
                    if batch is None:
                        continue
                    if batch.resync is not None:
                        yield job, batch.resync
                    for event in batch.events:
                        places[job] = Position(event.cursor)
                        yield job, event

    if False:  # sync only

        def subscribe(
            self, job: str, *, after: Cursor | str | None = None, last_seq: int | None = None
        ) -> Generator[Event | Resync, None, None]:
            """Yield every event of the job after the last one seen, in order, once, without end.

            A `Resync` among them says that the reader's place is not in the log: drop what was
            read before; what follows is the log from its oldest event on. While Redis is away the
            iterator waits. It does not end by itself: close it, or leave the loop.
            """
            names = JobsAndTopics((check_job(job),), ())
            return self._of_one(self._followed(names, {job: position(after, last_seq)}))

        def subscribe_many(
            self, names: Iterable[str], *, after: Mapping[str, Cursor | str] | None = None
        ) -> Generator[tuple[str, Event | Resync], None, None]:
            """Yield every event of several jobs, each with the id of its job, without end.

            A name is a job id, or a topic with a star such as "order-42/*": all jobs whose id
            starts with "order-42/", also those that begin later. `after` has the cursor of the last
            event seen of each job; the others start at their beginning. The events of one job are
            in order and come once. A `Resync` is about its job alone. Raise UnreadableError if a
            job cannot be read.
            """
            return self._followed(names_of(names), places_of(after))

        def _followed(
            self, names: JobsAndTopics, places: dict[str, Position]
        ) -> Generator[tuple[str, Event | Resync], None, None]:
            shards = self.settings.shards
            tail = Tail(self._log, self._read, shards, self._observers, names=names, places=places)
            return tail.changes()

        def _of_one(
            self, changes: Generator[tuple[str, Event | Resync], None, None]
        ) -> Generator[Event | Resync, None, None]:
            with closing(changes):
                for _, change in changes:
                    yield change

    async def aclose(self) -> None:
        """Close the connections of the running loop to the server. The next use opens new ones."""
        await self._log.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def publish(
        self,
        job: str,
        stage: str,
        data: Any,
        *,
        seq: int | None = None,
        step: int | None = None,
        strict: bool = False,
    ) -> Published:
        """Append the event to the job's log, once, however often it is published.

        `seq` is its number, or `step` its position in the range of its stage. A duplicate with
        other data leaves the first event and is returned with `differs`; with `strict` it raises
        KeyReusedError. Raise InvalidEventError if the event cannot be published as it is, and
        BackpressureError if the stream of its shard is full.
        """
        asks = [prepare((job, stage, data, seq, step), self.settings)]
        try:
            answers = await self._log.append(asks)
        except StoreError as error:
            answers = await self._appended_again(asks, error)
        return self._made(asks, answers, strict=strict)[0]

    async def publish_batch(
        self, drafts: Iterable[Draft], *, strict: bool = False
    ) -> list[Published]:
        """Append all events in their order, in one round trip. After an error publish all again."""
        asks = [prepare(Draft(*draft), self.settings) for draft in drafts]
        if not asks:
            return []
        try:
            answers = await self._log.append(asks)
        except StoreError as error:
            answers = await self._appended_again(asks, error)
        return self._made(asks, answers, strict=strict)

    async def read(
        self,
        job: str,
        *,
        after: Cursor | str | None = None,
        last_seq: int | None = None,
        limit: int = LIMIT,
    ) -> Page:
        """Return events of a job after the last one that the reader saw, or from the start.

        `after` is the cursor of that event or its text. With `last_seq`, a number, they are all
        events with a greater one. A page has at most `limit` events and about 1 MiB: a shorter one
        is not the last; the one without events is.
        """
        saw = position(after, last_seq)
        found = await self._read(check_job(job), saw, check_limit(limit))
        while found.more and not found.entries:  # none of them has a number above last_seq
            found = await self._read(job, found.position, limit)
        if found.resync is not None:
            self._observers.tell("resync", reason=found.resync.reason)
        return Page(found.events(), found.position.cursor, found.resync)

    async def state(self, job: str) -> Event | None:
        """Return the event with the greatest seq, or None if the job has had none lately."""
        shard = shard_of(check_job(job), self.settings.shards)
        kept = await self._log.state(job, shard)
        return None if kept is None else read_event(kept.payload, kept.cursor)

    async def _appended_again(
        self, asks: list[Append], error: StoreError
    ) -> list[Published | LogFull]:
        """Append the same events again. Raise the error at once if the server has refused them.

        The marks are the same, so that an event that was appended the first time is recognized as
        ours.
        """
        if error.happened is False:
            raise error if len(asks) == 1 else partly(error)
        try:
            return await self._log.append(asks)
        except StoreError as again:
            raise doubted(again) from again

    def _made(
        self, asks: list[Append], answers: list[Published | LogFull], *, strict: bool
    ) -> list[Published]:
        self._observers.tell_answers(answers)
        made = [answer for answer in answers if type(answer) is Published]
        if len(made) < len(asks):
            missing = len(asks) - len(made)
            for ask, answer in zip(asks, answers, strict=True):
                if isinstance(answer, LogFull):
                    raise refused(ask.shard, answer.length, missing=missing, of=len(asks))
        if strict:
            for ask, answer in zip(asks, made, strict=True):
                check_same(answer, ask, self.settings.domain)
        return made

    async def _read(self, job: str, saw: Position, limit: int, *, watch: bool = False) -> Part:
        shard = shard_of(job, self.settings.shards)
        look = await self._log.look(job, shard, saw.start._replace(watch=watch), limit)
        reason = verdict(saw, look)
        if reason is not None:
            look = await self._log.look(job, shard, FIRST, limit)
        return part(job, saw, look, reason)


def open_log_async(where: Where, settings: BusSettings, observers: EventObservers) -> AsyncEventLog:
    """Return the log for coroutines. Nothing is sent yet."""
    memory = memory_of(where)
    if memory is not None:
        return AsyncMemoryLog(memory, settings)
    with needing("redis", "a bus in Redis"):
        from oncekey.events.redis_log_async import AsyncRedisLog
        from oncekey.stores.redis.client import AsyncClients

    make = AsyncClients.of_url if isinstance(where, str) else AsyncClients.of_client
    return AsyncRedisLog(make(where), settings, observers)
