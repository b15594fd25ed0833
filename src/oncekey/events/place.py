"""What a bus needs of the place where events are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

from oncekey.events.cursor import Cursor, View
from oncekey.events.draft import Ask
from oncekey.events.event import Published


class Full(NamedTuple):
    """The shard's stream has as many entries as it may have; nothing was appended."""

    length: int


class Start(NamedTuple):
    """Where to read from: after an offset, after the event with a number, or what is left."""

    kind: Literal["offset", "seq", "first"]
    number: int = 0


FIRST: Final = Start("first")


class Entry(NamedTuple):
    """One event of a log."""

    offset: int
    mark: str
    payload: bytes


class Look(NamedTuple):
    """A part of a log, read in one step."""

    view: View
    offset: int | None
    """Where the part starts; None where no single event has the number that was asked for."""
    entries: list[Entry]


class Kept(NamedTuple):
    """The state of a job."""

    cursor: Cursor
    payload: bytes


class Place(Protocol):
    """Events in a place. Each method is one atomic step for each job."""

    def append(self, asks: Sequence[Ask], /) -> list[Published | Full]:
        """Each is in its log and in its shard's stream, once. Asking again converges."""
        ...

    def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Some events after the start."""
        ...

    def state(self, job: str, shard: int, /) -> Kept | None:
        """The event with the greatest seq that a router has seen."""
        ...

    def close(self) -> None:
        """Our connections are closed."""
        ...


class AsyncPlace(Protocol):
    """The same for coroutines."""

    async def append(self, asks: Sequence[Ask], /) -> list[Published | Full]:
        """Each is in its log and in its shard's stream, once. Asking again converges."""
        ...

    async def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Some events after the start."""
        ...

    async def state(self, job: str, shard: int, /) -> Kept | None:
        """The event with the greatest seq that a router has seen."""
        ...

    def listening(self, job: str, shard: int, /) -> AbstractAsyncContextManager[asyncio.Event]:
        """In the block the event is set whenever the log may have grown. It may be missed."""
        ...

    async def aclose(self) -> None:
        """Our connections are closed."""
        ...
