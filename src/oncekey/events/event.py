"""An event, who it is, and how it is checked and encoded before it is appended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import md5, sha256
from time import time_ns
from typing import Any, Final, NamedTuple

import msgspec

from oncekey.engine.ticket import new_nonce
from oncekey.errors import KeyReusedError
from oncekey.events.cursor import Cursor
from oncekey.events.errors import InvalidEventError
from oncekey.events.settings import BusSettings

# An event, who it is, and what its publisher is told.


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


# From what a producer says to what is appended: checked and encoded, or refused.


_LONGEST_JOB: Final = 512
_encoder = msgspec.json.Encoder(order="deterministic")
_shard_of = lru_cache(4096)(shard_of)  # a job has many events


class Draft(NamedTuple):
    """An event to be published."""

    job: str
    stage: str
    data: Any
    seq: int | None = None
    step: int | None = None


Parts = tuple[str, str, Any, int | None, int | None]
"""Those of a draft, in their order."""


class Append(msgspec.Struct, frozen=True):
    """An event that can be appended, once."""

    job: str
    shard: int
    stage: str
    seq: int
    payload: bytes
    digest: str
    """Of the data alone: the producer's clock is no difference."""
    mark: str
    """Random, and the same when the question is asked again: the answer may have been lost."""
    epoch: str
    """For the log, if this begins it."""


def check_job(job: str) -> str:
    """The job id, if it is one."""
    if not isinstance(job, str) or not 1 <= len(job) <= _LONGEST_JOB:
        msg = f"a job id has 1 to {_LONGEST_JOB} characters, but this one is {job!r}"
        raise InvalidEventError(msg)
    return job


def prepare(draft: Parts, settings: BusSettings) -> Append:
    """The draft as it is appended. Raises before anything is sent."""
    job, stage, given, seq, step = draft
    shard = _shard_of(check_job(job), settings.shards)
    number = settings.stages.seq_of(stage, seq=seq, step=step)
    data = _encoded(job, stage, given, settings.data_bytes)
    payload = _written(Body(job, settings.domain, stage, number, msgspec.Raw(data), _now()))
    epoch = new_nonce()
    digest = sha256(data).hexdigest()[:32]
    return Append(job, shard, stage, number, payload, digest, epoch[:8], epoch)


def strictly(published: Published, ask: Append, domain: str) -> Published:
    """The answer, unless it is a duplicate with other data."""
    if not published.differs:
        return published
    msg = (
        f"the event {ask.stage} {ask.seq} of job {ask.job!r} was published with other data; the "
        f"first one stays. Give another seq if this is another event"
    )
    raise KeyReusedError(msg, key=f"{ask.job}/{ask.stage}/{ask.seq}", scope=domain)


def _now() -> str:
    """The time of this clock, in the format of `datetime.isoformat`."""
    second, rest = divmod(time_ns(), 1_000_000_000)
    return f"{_written_second(second)}.{rest // 1000:06}+00:00"


@lru_cache(1)  # many events are of one second, and to write it costs most
def _written_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _encoded(job: str, stage: str, given: Any, most: int) -> bytes:
    try:
        data = _encoder.encode(given)
        if b"null" in data:  # which is also how a NaN would be written
            json.dumps(msgspec.to_builtins(given), allow_nan=False)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        msg = f"the data of {stage!r} of job {job!r} cannot be written as JSON: {error}"
        raise InvalidEventError(msg) from error
    if len(data) > most:
        msg = (
            f"the data of {stage!r} of job {job!r} has {len(data)} bytes as JSON, more than "
            f"max_data, {most}; publish a link"
        )
        raise InvalidEventError(msg)
    return data


def _written(body: Body) -> bytes:
    try:
        return _encoder.encode(body)
    except UnicodeEncodeError as error:
        raise InvalidEventError(f"the stage {body.stage!r} cannot be written as UTF-8") from error
