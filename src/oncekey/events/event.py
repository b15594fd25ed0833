"""The event, its identity, and the checks and encoding before it is appended."""

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

# An event, its identity, and the answer to its publisher.


class Identity(NamedTuple):
    """The identity that the producer chooses. Two events with the same identity are one event."""

    domain: str
    job: str
    stage: str
    seq: int


class EventBody(msgspec.Struct, frozen=True):
    """An event as it is sent: the JSON in the field `data` of a stream entry."""

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
    """The time at which the producer made it, by its own clock. Nothing depends on it."""
    cursor: Cursor
    """The cursor with which to read on after this event."""

    @property
    def id(self) -> str:
        """The cursor as text, `epoch.offset.mark`."""
        return str(self.cursor)

    @property
    def offset(self) -> int:
        """The place in the log: 1 for the first event of the job, then 2."""
        return self.cursor.offset

    @property
    def identity(self) -> Identity:
        """The identity by which duplicates are found."""
        return Identity(self.domain, self.job, self.stage, self.seq)


class Published(NamedTuple):
    """The place of an event. Falsy if the event was there before."""

    offset: int
    """The place in the log, or 0 for a duplicate of an event that is very old."""
    epoch: str
    duplicate: bool
    differs: bool | None
    """Whether a duplicate came with other data than the first event, which stays.

    None if the first event is so old that its data are not known any more.
    """

    def __bool__(self) -> bool:
        return not self.duplicate


_decoder = msgspec.json.Decoder(EventBody)
_encoder = msgspec.json.Encoder(order="deterministic")


def read_event(payload: bytes, cursor: Cursor) -> Event:
    """Return the event in an entry. Raise the error of msgspec if it is none."""
    body = _decoder.decode(payload)
    return Event(body.job_id, body.domain, body.stage, body.seq, body.data, body.timestamp, cursor)


def head_of(job: str, domain: str) -> bytes:
    """Return what all payloads of a job begin with, up to the stage."""
    return b'{"job_id":%b,"domain":%b' % (_encoder.encode(job), _encoder.encode(domain))


def payload_of(head: bytes, stage: bytes, seq: bytes, data: bytes, time: bytes) -> bytes:
    """Return the event as JSON. Stage and time are given as JSON without its quotes."""
    return b'%b,"stage":"%b","seq":%b,"data":%b,"timestamp":"%b"}' % (head, stage, seq, data, time)


def bare(text: str) -> bytes:
    """Return the text as JSON without its quotes: in one line, and without a tab.

    Raise InvalidEventError if it is not valid Unicode.
    """
    try:
        return _encoder.encode(text)[1:-1]
    except UnicodeEncodeError:
        raise InvalidEventError(f"the stage {text!r} cannot be written as UTF-8") from None


def shard_of(job: str, shards: int) -> int:
    """Return the shard of a job, which never changes.

    Raise InvalidEventError if the job id is not valid Unicode.
    """
    try:
        digest = md5(job.encode(), usedforsecurity=False).hexdigest()
    except UnicodeEncodeError:
        raise InvalidEventError(f"the job id {job!r} cannot be written as UTF-8") from None
    return int(digest, 16) % shards


# Checking and encoding of a producer's event.


_LONGEST_JOB: Final = 512
ALL_OF_TOPIC: Final = "/*"
"""What stands after a topic in the name of all its jobs."""


_label = lru_cache(256)(bare)  # there are few stages, and each has many events


class Draft(NamedTuple):
    """An event to be published."""

    job: str
    stage: str
    data: Any
    seq: int | None = None
    step: int | None = None


Parts = tuple[str, str, Any, int | None, int | None]
"""The fields of a draft, in their order."""


class Append(msgspec.Struct, frozen=True):
    """An event that is ready to be appended once."""

    job: str
    shard: int
    stage: str
    seq: int
    head: bytes
    """What the JSON of every event of the job begins with."""
    label: bytes
    """The stage, as JSON without its quotes."""
    data: bytes
    """The data, as JSON."""
    time: str
    digest: str
    """The digest of the data alone: another time of the producer makes no difference."""
    mark: str
    """Random bytes, the same when the request is repeated after a lost answer."""
    epoch: str
    """The epoch of the log, if this event begins it."""

    @property
    def payload(self) -> bytes:
        """The event as JSON."""
        seq, time = b"%d" % self.seq, self.time.encode()
        return payload_of(self.head, self.label, seq, self.data, time)


def check_job(job: str) -> str:
    """Return the job id. Raise InvalidEventError if it is not one."""
    if not isinstance(job, str) or not 1 <= len(job) <= _LONGEST_JOB:
        msg = f"a job id has 1 to {_LONGEST_JOB} characters, but this one is {job!r}"
        raise InvalidEventError(msg)
    if job.endswith(ALL_OF_TOPIC):
        msg = f"a job id does not end in {ALL_OF_TOPIC}, but {job!r} does: it names a topic"
        raise InvalidEventError(msg)
    return job


def topic_of(job: str) -> str | None:
    """Return the topic of a job: what stands before the first slash of its id, if there is one."""
    topic, slash, _ = job.partition("/")
    return topic if topic and slash else None


def prepare(draft: Parts, settings: BusSettings) -> Append:
    """Return the draft as it is appended. Raise InvalidEventError before anything is sent."""
    job, stage, given, seq, step = draft
    if type(job) is not str:
        check_job(job)  # before it is looked up: it may be no key
    shard, head = _shard_and_head(job, settings.domain, settings.shards)
    number = settings.stages.seq_of(stage, seq=seq, step=step)
    data = _encoded(job, stage, given, settings.data_bytes)
    digest = sha256(data).hexdigest()[:16]
    nonce = new_nonce()
    return Append(
        *(job, shard, stage, number, head, _label(stage), data, _now()), digest, nonce[:8], nonce
    )


@lru_cache(4096)  # a job has many events
def _shard_and_head(job: str, domain: str, shards: int) -> tuple[int, bytes]:
    return shard_of(check_job(job), shards), head_of(job, domain)


def check_same(published: Published, ask: Append, domain: str) -> None:
    """Raise KeyReusedError if it is a duplicate with other data.

    Raise InvalidEventError if it is so old that this cannot be told.
    """
    if published.differs is False:
        return
    if published.differs is None:
        msg = (
            f"the event {ask.stage} {ask.seq} of job {ask.job!r} was published too long ago to "
            f"tell whether its data are the same; publish it without strict, or give another seq"
        )
        raise InvalidEventError(msg)
    msg = (
        f"the event {ask.stage} {ask.seq} of job {ask.job!r} was published with other data; the "
        f"first one stays. Give another seq if this is another event"
    )
    raise KeyReusedError(msg, key=f"{ask.job}/{ask.stage}/{ask.seq}", scope=domain)


def _now() -> str:
    """Return the time of this clock, in the format of `datetime.isoformat`."""
    second, rest = divmod(time_ns(), 1_000_000_000)
    return f"{_written_second(second)}.{rest // 1000:06}+00:00"


@lru_cache(1)  # formatting the second costs most, and many events share one
def _written_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _encoded(job: str, stage: str, given: Any, most: int) -> bytes:
    try:
        data = _encoder.encode(given)
        if b"null" in data:  # a NaN would be written as null too
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
