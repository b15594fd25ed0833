"""From what a producer says to what is appended: checked and encoded, or refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from time import time_ns
from typing import Any, Final, NamedTuple

import msgspec

from oncekey.engine.ticket import new_nonce
from oncekey.errors import KeyReusedError
from oncekey.events.event import Body, Published, shard_of
from oncekey.events.settings import Settings
from oncekey.events.trouble import InvalidEventError

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


class Ask(msgspec.Struct, frozen=True):
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


def prepare(draft: Parts, settings: Settings) -> Ask:
    """The draft as it is appended. Raises before anything is sent."""
    job, stage, given, seq, step = draft
    shard = _shard_of(check_job(job), settings.shards)
    number = settings.stages.seq_of(stage, seq=seq, step=step)
    data = _encoded(job, stage, given, settings.data_bytes)
    payload = _written(Body(job, settings.domain, stage, number, msgspec.Raw(data), _now()))
    epoch = new_nonce()
    digest = sha256(data).hexdigest()[:32]
    return Ask(job, shard, stage, number, payload, digest, epoch[:8], epoch)


def strictly(published: Published, ask: Ask, domain: str) -> Published:
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


def _encoded(job: str, stage: str, given: Any, most: int) -> bytes:  # noqa: ANN401 - the data
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
