"""The event log of a job: the protocol that a bus needs, and how a log is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Literal, NamedTuple, Protocol

from oncekey.errors import UnreadableError
from oncekey.events.cursor import START, Cursor, Reason, Resync, View, beginning, judge, parse
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import Append, Event, Published, read_event


class LogFull(NamedTuple):
    """The shard's stream has as many entries as it may have; nothing was appended."""

    length: int


class Start(NamedTuple):
    """Where to read from: after an offset, after the event with a number, or the oldest event."""

    kind: Literal["offset", "seq", "first"]
    number: int = 0


FIRST: Final = Start("first")

LIMIT: Final = 500
"""The default for the most events on a page."""


class Entry(NamedTuple):
    """One event of a log."""

    offset: int
    mark: str
    payload: bytes


class Look(NamedTuple):
    """A part of a log, read in one step."""

    view: View
    offset: int | None
    """The offset where the part starts, or None if no single event has the requested number."""
    entries: list[Entry]


class JobState(NamedTuple):
    """The state of a job."""

    cursor: Cursor
    payload: bytes


class EventLog(Protocol):
    """The storage of events. Each method is one atomic step for each job."""

    def append(self, asks: Sequence[Append], /) -> list[Published | LogFull]:
        """Append each event to its log and its shard's stream, once. It is safe to repeat."""
        ...

    def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Return at most `count` events after the start."""
        ...

    def state(self, job: str, shard: int, /) -> JobState | None:
        """Return the event with the greatest seq that a router has seen, or None."""
        ...

    def close(self) -> None:
        """Close our connections."""
        ...


class AsyncEventLog(Protocol):
    """The storage of events, for coroutines."""

    async def append(self, asks: Sequence[Append], /) -> list[Published | LogFull]:
        """Append each event to its log and its shard's stream, once. It is safe to repeat."""
        ...

    async def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Return at most `count` events after the start."""
        ...

    async def state(self, job: str, shard: int, /) -> JobState | None:
        """Return the event with the greatest seq that a router has seen, or None."""
        ...

    def listening(self, job: str, shard: int, /) -> AbstractAsyncContextManager[asyncio.Event]:
        """Yield an event that is set whenever the log may have grown. A wake-up may be missed."""
        ...

    async def aclose(self) -> None:
        """Close our connections."""
        ...


# Reading of a log: what is asked for, and what the reader gets.


class Page(NamedTuple):
    """Some events of a job, in order, and the cursor to go on from."""

    events: list[Event]
    cursor: Cursor | None
    """The cursor for the next page, or None if there is no log yet."""
    resync: Resync | None
    """If set, drop what was read before: these events are the oldest that are left."""


class Position(NamedTuple):
    """What a reader saw last: an event, the event with a number, or nothing."""

    cursor: Cursor | None = None
    seq: int | None = None
    foreign: bool = False

    @property
    def start(self) -> Start:
        """The place to read from."""
        if self.seq is not None:
            return Start("seq", self.seq)
        return Start("offset", 0 if self.cursor is None else self.cursor.offset)


def position(after: Cursor | str | None, last_seq: int | None) -> Position:
    """Return the position for what the caller saw last.

    Raise InvalidEventError if both are given, or if `last_seq` is not a number from 0 on.
    """
    if last_seq is not None:
        if after is not None:
            raise InvalidEventError("give after or last_seq, not both")
        if not isinstance(last_seq, int) or isinstance(last_seq, bool) or last_seq < 0:
            raise InvalidEventError(f"last_seq is a number from 0 on, not {last_seq!r}")
        return Position(seq=last_seq or None)
    cursor = parse(str(after)) if after is not None else None
    if cursor == START:
        return Position()
    return Position(cursor, foreign=after is not None and cursor is None)


def check_limit(limit: int) -> int:
    """Return the limit. Raise InvalidEventError if it is not a whole number above zero."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidEventError(f"limit is a whole number above zero, not {limit!r}")
    return limit


def verdict(saw: Position, look: Look) -> Reason | None:
    """Return why the reader cannot go on from its position, or None if it can."""
    if saw.foreign:
        return "foreign"
    if saw.seq is None:
        return judge(saw.cursor, look.view)
    if look.offset is None:
        return "seq"
    return "trimmed" if look.offset < look.view.first else None


def page(job: str, saw: Position, look: Look, reason: Reason | None) -> Page:
    """Return the page for what was read."""
    events = [_event(job, look.view.epoch or "", entry) for entry in look.entries]
    resync = None if reason is None else Resync(reason)
    if events:
        return Page(events, events[-1].cursor, resync)
    if reason is None and saw.seq is None:
        return Page(events, saw.cursor, None)
    if reason is None and look.view.epoch is not None and look.view.mark is not None:
        return Page(events, Cursor(look.view.epoch, look.offset or 0, look.view.mark), None)
    return Page(events, beginning(look.view), resync)


def _event(job: str, epoch: str, entry: Entry) -> Event:
    try:
        return read_event(entry.payload, Cursor(epoch, entry.offset, entry.mark))
    except ValueError as error:  # the errors of msgspec are ValueErrors
        msg = f"entry {entry.offset} in the log of job {job!r} is no event: {error}"
        raise UnreadableError(msg, key=job) from error
