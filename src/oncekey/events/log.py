"""The event log of a job: the protocol that a bus needs, and how a log is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Final, Literal, NamedTuple, Protocol

from oncekey.errors import UnreadableError
from oncekey.events.cursor import START, Cursor, Reason, Resync, View, beginning, judge, parse
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import Append, Event, Published, read_event


class LogFull(NamedTuple):
    """The shard's stream has as many entries as it may have; nothing was appended."""

    length: int


class Start(NamedTuple):
    """Where to read from: after an offset, or from the oldest event on."""

    kind: Literal["offset", "first"]
    number: int = 0
    watch: bool = False
    """Whether the reader wants to be woken when the log grows."""


FIRST: Final = Start("first")

LIMIT: Final = 500
"""The default for the most events on a page."""
BUDGET: Final = 1024 * 1024
"""Bytes after which a page ends, and for which a client that does not read may let events wait.

One event always passes, however large it is.
"""

MOST_JOBS: Final = 1000
"""The most living jobs of a topic that can be followed together."""


class Entry(NamedTuple):
    """One event of a log."""

    offset: int
    mark: str
    seq: int
    payload: bytes


class Look(NamedTuple):
    """A part of a log, read in one step."""

    view: View
    offset: int
    """The offset after which the part starts."""
    entries: list[Entry]


class JobState(NamedTuple):
    """The state of a job."""

    cursor: Cursor
    payload: bytes


class Listener(Protocol):
    """What tells code that blocks which logs may have grown."""

    def hear(self, name: str, shard: int, /) -> None:
        """Hear of a job, or of all jobs of a topic when one of them begins."""
        ...

    def ignore(self, name: str, shard: int, /) -> None:
        """Hear of it no more."""
        ...

    def wait(self, seconds: float, /) -> set[str]:
        """Return the names of what may have grown, at the latest after so many seconds.

        Something may be missed.
        """
        ...


class EventLog(Protocol):
    """The storage of events. Each method is one atomic step for each job."""

    def append(self, asks: Sequence[Append], /) -> list[Published | LogFull]:
        """Append each event to its log and its shard's stream, once. It is safe to repeat."""
        ...

    def look(self, job: str, shard: int, start: Start, count: int, /) -> Look:
        """Return at most `count` events after the start, and fewer if they are large."""
        ...

    def state(self, job: str, shard: int, /) -> JobState | None:
        """Return the event with the greatest seq that a router has seen, or None."""
        ...

    def topic(self, topic: str, shard: int, /) -> list[str]:
        """Return the living jobs of a topic in a shard, or `MOST_JOBS` + 1 if there are more."""
        ...

    def listening(self) -> AbstractContextManager[Listener]:
        """Yield what hears of jobs and topics."""
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
        """Return at most `count` events after the start, and fewer if they are large."""
        ...

    async def state(self, job: str, shard: int, /) -> JobState | None:
        """Return the event with the greatest seq that a router has seen, or None."""
        ...

    async def topic(self, topic: str, shard: int, /) -> list[str]:
        """Return the living jobs of a topic in a shard, or `MOST_JOBS` + 1 if there are more."""
        ...

    def listening(
        self, name: str, shard: int, wake: Callable[[str], None], /
    ) -> AbstractAsyncContextManager[None]:
        """Call `wake` on the running loop whenever the log may have grown. A call may be missed.

        It is called with the id of the newest event, or with an empty one if nobody knows it. With
        the name of all jobs of a topic, it is called when one of them may have begun.
        """
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
    """What a reader saw last, and the number above which it wants events, if any."""

    cursor: Cursor | None = None
    above: int | None = None
    foreign: bool = False

    @property
    def start(self) -> Start:
        """The place to read from."""
        if self.cursor is None and self.above is not None:
            return FIRST
        return Start("offset", 0 if self.cursor is None else self.cursor.offset)


FROM_START: Final = Position()


def position(after: Cursor | str | None, last_seq: int | None) -> Position:
    """Return the position for what the caller saw last.

    Raise InvalidEventError if both are given, if `last_seq` is not a number from 0 on, or if
    `after` is neither a cursor nor a text. A text that is no cursor leads to a resync.
    """
    if last_seq is not None:
        if after is not None:
            raise InvalidEventError("give after or last_seq, not both")
        if not isinstance(last_seq, int) or isinstance(last_seq, bool) or last_seq < 0:
            raise InvalidEventError(f"last_seq is a number from 0 on, not {last_seq!r}")
        return Position(above=last_seq)
    if after is not None and not isinstance(after, (Cursor, str)):
        msg = (
            f"after is the cursor of an event, or its text, not an object of {type(after).__name__}"
        )
        raise InvalidEventError(msg)
    cursor = parse(str(after)) if after is not None else None
    if cursor == START:
        return Position()
    return Position(cursor, foreign=after is not None and cursor is None)


def check_limit(limit: int) -> int:
    """Return the limit. Raise InvalidEventError if it is not a whole number above zero."""
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidEventError(f"limit is a whole number above zero, not {limit!r}")
    return limit


class Part(NamedTuple):
    """A part of a log, as a reader gets it from its position."""

    job: str
    epoch: str
    entries: list[Entry]
    position: Position
    """The position after it."""
    resync: Resync | None
    more: bool
    """Whether the log goes on after it."""

    def events(self) -> list[Event]:
        """Return the events. Raise UnreadableError if an entry is none."""
        return [
            decoded(self.job, entry.payload, Cursor(self.epoch, entry.offset, entry.mark))
            for entry in self.entries
        ]


def verdict(saw: Position, look: Look) -> Reason | None:
    """Return why the reader cannot go on from its position, or None if it can."""
    if saw.foreign:
        return "foreign"
    if saw.cursor is not None or saw.above is None:
        return judge(saw.cursor, look.view)
    # An event that is gone counts if its number is one that the reader wants.
    gone = look.view.gone
    return "trimmed" if gone is None or gone > saw.above else None


def part(job: str, saw: Position, look: Look, reason: Reason | None) -> Part:
    """Return what was read, for a reader who came from this position.

    Raise UnreadableError if somebody else has changed the log.
    """
    view, entries = look.view, look.entries
    for number, entry in enumerate(entries, look.offset + 1):
        if entry.offset != number:
            msg = (
                f"the log of job {job!r} was changed by somebody else: event {entry.offset} stands "
                f"at place {number}. Delete its log to begin another"
            )
            raise UnreadableError(msg, key=job)
    above = None if reason is not None else saw.above
    if entries:
        cursor: Cursor | None = Cursor(view.epoch or "", entries[-1].offset, entries[-1].mark)
    elif reason is None and saw.cursor is not None:
        cursor = saw.cursor
    elif reason is None and saw.above is None:
        cursor = None
    else:
        cursor = beginning(view)
    wanted = entries if above is None else [one for one in entries if one.seq > above]
    resync = None if reason is None else Resync(reason)
    more = bool(entries) and entries[-1].offset < view.last
    return Part(job, view.epoch or "", wanted, Position(cursor, above), resync, more)


def decoded(job: str, payload: bytes, cursor: Cursor) -> Event:
    """Return the event. Raise UnreadableError if it is none."""
    try:
        return read_event(payload, cursor)
    except ValueError as error:  # the errors of msgspec are ValueErrors
        msg = f"entry {cursor.offset} in the log of job {job!r} is no event: {error}"
        raise UnreadableError(msg, key=job) from error
