"""From what a producer says to what is appended: checked and encoded, or refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import sha256
from os import urandom
from typing import Any, Final, NamedTuple

import msgspec

from oncekey.errors import KeyReusedError
from oncekey.events.event import Body, Published, shard_of
from oncekey.events.settings import Settings
from oncekey.events.trouble import InvalidEventError

_LONGEST_JOB: Final = 512
_encoder = msgspec.json.Encoder(order="deterministic")


class Draft(NamedTuple):
    """An event to be published."""

    job: str
    stage: str
    data: Any
    seq: int | None = None
    step: int | None = None


class Ask(NamedTuple):
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


def prepare(draft: Draft, settings: Settings) -> Ask:
    """The draft as it is appended. Raises before anything is sent."""
    job = check_job(draft.job)
    shard = shard_of(job, settings.shards)
    seq = settings.stages.seq_of(draft.stage, seq=draft.seq, step=draft.step)
    data = _encoded(draft, settings.data_bytes)
    now = datetime.now(UTC).isoformat()
    body = Body(job, settings.domain, draft.stage, seq, msgspec.Raw(data), now)
    noise = urandom(12).hex()
    return Ask(
        job,
        shard,
        draft.stage,
        seq,
        _written(body),
        sha256(data).hexdigest()[:32],
        noise[:8],
        noise[8:],
    )


def strictly(published: Published, ask: Ask, domain: str) -> Published:
    """The answer, unless it is a duplicate with other data."""
    if not published.differs:
        return published
    msg = (
        f"the event {ask.stage} {ask.seq} of job {ask.job!r} was published with other data; the "
        f"first one stays. Give another seq if this is another event"
    )
    raise KeyReusedError(msg, key=f"{ask.job}/{ask.stage}/{ask.seq}", scope=domain)


def _encoded(draft: Draft, most: int) -> bytes:
    where = f"the data of {draft.stage!r} of job {draft.job!r}"
    try:
        data = _encoder.encode(draft.data)
        if b"null" in data:  # which is also how a NaN would be written
            json.dumps(msgspec.to_builtins(draft.data), allow_nan=False)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidEventError(f"{where} cannot be written as JSON: {error}") from error
    if len(data) > most:
        msg = f"{where} has {len(data)} bytes as JSON, more than max_data, {most}; publish a link"
        raise InvalidEventError(msg)
    return data


def _written(body: Body) -> bytes:
    try:
        return _encoder.encode(body)
    except UnicodeEncodeError as error:
        raise InvalidEventError(f"the stage {body.stage!r} cannot be written as UTF-8") from error
