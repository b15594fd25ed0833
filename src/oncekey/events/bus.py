"""The front door: a bus of one colour for a domain."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from types import TracebackType
from typing import Self, TypedDict, Unpack

from oncekey.events.cursor import Cursor, Resync
from oncekey.events.door import Door
from oncekey.events.door_async import AsyncDoor
from oncekey.events.draft import check_job
from oncekey.events.event import Event
from oncekey.events.following import Following
from oncekey.events.observing import Observer, Observers
from oncekey.events.opening import Where, open_place, open_place_async
from oncekey.events.reading import Position, position
from oncekey.events.settings import Settings
from oncekey.events.stages import Stages
from oncekey.policy import Duration


class Options(TypedDict, total=False):
    """What else can be set; `Settings` says what it means."""

    shards: int
    length: int
    most: int | None
    log_length: int
    state_ttl: Duration
    marker_ttl: Duration
    max_data: str | int
    dead_length: int


def settings_of(domain: str, stages: Stages | None, options: Options) -> Settings:
    """The settings, checked."""
    return Settings(domain, Stages() if stages is None else stages, **options)


class Bus(Door):
    """The events of a domain, for blocking code."""

    def __init__(
        self,
        where: Where,
        *,
        domain: str,
        stages: Stages | None = None,
        observers: Iterable[Observer] = (),
        **options: Unpack[Options],
    ) -> None:
        """`where` is a URL, a client of redis-py, or a `Memory`. Nothing is sent yet."""
        settings = settings_of(domain, stages, options)
        told = Observers(settings.domain, observers)
        super().__init__(open_place(where, settings, told), settings, told)

    def close(self) -> None:
        """Our connections are closed. The next use opens new ones."""
        self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncBus(AsyncDoor):
    """The events of a domain, for coroutines."""

    def __init__(
        self,
        where: Where,
        *,
        domain: str,
        stages: Stages | None = None,
        observers: Iterable[Observer] = (),
        **options: Unpack[Options],
    ) -> None:
        """`where` is a URL, a client of redis.asyncio, or a `Memory`. Nothing is sent yet."""
        settings = settings_of(domain, stages, options)
        told = Observers(settings.domain, observers)
        super().__init__(open_place_async(where, settings, told), settings, told)
        self.following = Following(self._place, self._read, settings.shards, told)

    def subscribe(
        self, job: str, *, after: Cursor | str | None = None, last_seq: int | None = None
    ) -> AsyncGenerator[Event | Resync, None]:
        """Every event of the job after the one that was seen last, in order, once, and for ever.

        A `Resync` among them says that the reader's place is not in the log: what it had does not
        count, and what follows is the log from the first event that is left. While Redis is away
        the iterator waits. It ends only with its reader: close it, or leave the loop.
        """
        return self.follow(check_job(job), position(after, last_seq))

    async def aclose(self) -> None:
        """The connections of the running loop are closed. The next use opens new ones."""
        await self._place.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def follow(self, job: str, saw: Position) -> AsyncGenerator[Event | Resync, None]:
        """The same, for a job and a position that were checked."""
        async with self.following(job, saw) as follower:
            while True:
                for batch in await follower.batches():
                    if batch.resync is not None:
                        yield batch.resync
                    for event in batch.events:
                        yield event
