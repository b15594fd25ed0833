"""An event, who it is, and what its publisher is told."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from typing import Any, NamedTuple

import msgspec

from oncekey.events.cursor import Cursor
from oncekey.events.trouble import InvalidEventError


class Identity(NamedTuple):
    """Chosen by the producer: two events with one identity are one event."""

    domain: str
    job: str
    stage: str
    seq: int


class Body(msgspec.Struct, frozen=True):
    """An event as it travels: the JSON in the field `data` of a stream's entry."""

    job_id: str
    domain: str
    stage: str
    seq: int
    data: Any
    timestamp: str


@dataclass(frozen=True, slots=True)
class Event:
    """An accepted event, at its place in the log of its job."""

    job: str
    domain: str
    stage: str
    seq: int
    data: Any
    timestamp: str
    """When the producer made it, by its own clock. It decides nothing."""
    cursor: Cursor
    """To go on after this event."""

    @property
    def id(self) -> str:
        """The cursor as text, `epoch.offset.mark`."""
        return str(self.cursor)

    @property
    def offset(self) -> int:
        """Its place: 1 for the first event of the job, then 2."""
        return self.cursor.offset

    @property
    def identity(self) -> Identity:
        """What makes it this event and no other."""
        return Identity(self.domain, self.job, self.stage, self.seq)


class Published(NamedTuple):
    """Where an event stands. Falsy when it stood there before."""

    offset: int
    epoch: str
    duplicate: bool
    differs: bool
    """A duplicate came with other data than the first, which stays."""

    def __bool__(self) -> bool:
        return not self.duplicate


_decoder = msgspec.json.Decoder(Body)


def read_event(payload: bytes, cursor: Cursor) -> Event:
    """The event in an entry. Raises what msgspec raises when it is none."""
    body = _decoder.decode(payload)
    return Event(body.job_id, body.domain, body.stage, body.seq, body.data, body.timestamp, cursor)


def shard_of(job: str, shards: int) -> int:
    """The shard that a job belongs to, for ever."""
    try:
        digest = md5(job.encode(), usedforsecurity=False).hexdigest()
    except UnicodeEncodeError:
        raise InvalidEventError(f"the job id {job!r} cannot be written as UTF-8") from None
    return int(digest, 16) % shards
