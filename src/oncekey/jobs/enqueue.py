"""Deduplication of jobs when they are enqueued, which all queue adapters share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final, Generic, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct

from oncekey.core.call import Call
from oncekey.core.key import function_key
from oncekey.core.requests import Forget
from oncekey.engine import run, run_async
from oncekey.engine.run_base import BaseRun
from oncekey.errors import ConfigurationError, LeaseLostError, NotRecordedError, OncekeyError
from oncekey.functions import made_key
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import KeyFunction
from oncekey.once import Once
from oncekey.policy import FUNCTION, Duration, Policy, Terms, terms

# The tag on a job that was deduplicated at enqueue. It names the record that the worker frees.


_log = logging.getLogger("oncekey")

HEADER: Final = "oncekey-enqueued"
"""The header that carries the tag."""

Until = Literal["started", "finished", "succeeded", "ttl"]
"""The moment from which another job with the same key may be enqueued."""

JobMoment = Literal["started", "failed", "succeeded"]

_FREES: Final[dict[Until, tuple[JobMoment, ...]]] = {
    "started": ("started",),
    "finished": ("failed", "succeeded"),
    "succeeded": ("succeeded",),
    "ttl": (),
}


def checked_until(until: object) -> Until:
    """Return `until` if it is a known rule. Raise ConfigurationError otherwise."""
    if isinstance(until, str) and until in _FREES:
        return until
    msg = f"until must be one of {', '.join(get_args(Until))}, but it is {until!r}"
    raise ConfigurationError(msg)


class Tag(Struct, array_like=True):
    """The record of an enqueued job, and the rule by which it is freed."""

    scope: str | None
    key: str
    token: int
    until: Until

    def text(self) -> str:
        """Return the value of the header."""
        return msgspec.json.encode(self).decode()

    def forget(self) -> Forget:
        """Return the request that frees the record."""
        # Use force: the producer may not have settled yet. Its settle is then refused, which counts
        # as success too.
        return Forget(self.scope, self.key, token=self.token, force=True)


def read_tag(text: object) -> Tag | None:
    """Return the tag in a header, or None if the value is not a tag."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=Tag)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def free_tagged(once: Once, tag: Tag | None, moment: JobMoment) -> None:
    """Free the key at this moment of the job, if the tag's rule says so.

    A store that is down does not fail the job: the ttl frees the key later.
    """
    if tag is None or moment not in _FREES[tag.until]:
        return
    try:
        once.store.forget(tag.forget())
    except OncekeyError as error:
        _log.warning("an enqueued job could not be freed, its ttl will: %s", error)


async def free_tagged_async(once: Once, tag: Tag | None, moment: JobMoment) -> None:
    """Free the key at this moment of the job, if the tag's rule says so."""
    if tag is None or moment not in _FREES[tag.until]:
        return
    try:
        await once.store_async.forget(tag.forget())
    except OncekeyError as error:
        _log.warning("an enqueued job could not be freed, its ttl will: %s", error)


# The key under which a job is enqueued.


def enqueue_key(key: KeyFunction | str, job: Job) -> str:
    """Return the key itself, or what the key function makes of the job.

    Raise ConfigurationError for anything else, and for `by_task_id`, since each job has its own id.
    """
    if isinstance(key, str):
        return key
    if not callable(key) or isinstance(key, type):
        msg = f"enqueue_once needs a key, or a function that makes it of the job, not {key!r}"
        raise ConfigurationError(msg)
    if key is by_task_id:
        msg = "enqueue_once needs a key made of arguments: every job has an id of its own"
        raise ConfigurationError(msg)
    return key(job)


# Deduplication at enqueue, so that a job is not queued twice.
#
# This saves work and tells the caller which job is meant. It does not replace the protection of the
# handler: a queue may still deliver one job twice.
#
# Do not use it inside a database transaction that also decides whether the job exists: the claim is
# not part of that transaction and would outlive a rollback.


H = TypeVar("H")
Headers = Mapping[str, str]

ENQUEUE: Final = Policy(lease="30s", heartbeat=False, wait="5s", fail_mode="open")
_NOT_TAGGED: Final[Headers] = {}
_SILENT: Final = Policy()


class Enqueued(Struct, Generic[H]):
    """The handle of a job, and whether the job was enqueued before."""

    handle: H
    duplicate: bool


def enqueue_once(
    once: Once,
    key: str,
    publish: Callable[[Headers], H],
    *,
    name: str = "",
    ttl: Duration | None = None,
    until: Until = "finished",
    policy: Policy | None = None,
) -> Enqueued[H]:
    """Enqueue the job unless one with the same key was enqueued. Return its handle.

    `publish` puts the job into the queue with the headers it is given, and returns its handle: an
    id or another plain value, which every duplicate gets. If it raises, the claim is undone. With
    an empty key the job is always enqueued.
    """
    call = _call(once, key, publish, name, ttl, policy)
    rule = checked_until(until)
    if call is None:
        return Enqueued(publish(_NOT_TAGGED), duplicate=False)
    core, active, call = once.use(call, call.terms)
    done: Enqueued[H] | None = None
    try:
        with run.enter(core.engine(), call, active=active) as running:
            if running.ticket.duplicate:
                return Enqueued(running.result, duplicate=True)
            done = Enqueued(publish(_headers(running, rule)), duplicate=False)
            running.complete(done.handle)
    except (LeaseLostError, NotRecordedError):
        if done is None:
            raise
    return done  # the job is in the queue, even if its record is not settled


async def enqueue_once_async(
    once: Once,
    key: str,
    publish: Callable[[Headers], Awaitable[H]],
    *,
    name: str = "",
    ttl: Duration | None = None,
    until: Until = "finished",
    policy: Policy | None = None,
) -> Enqueued[H]:
    """Do the same as `enqueue_once`, with a coroutine function as `publish`."""
    call = _call(once, key, publish, name, ttl, policy)
    rule = checked_until(until)
    if call is None:
        return Enqueued(await publish(_NOT_TAGGED), duplicate=False)
    core, active, call = once.use(call, call.terms)
    done: Enqueued[H] | None = None
    try:
        async with await run_async.enter(core.engine_async(), call, active=active) as running:
            if running.ticket.duplicate:
                return Enqueued(running.result, duplicate=True)
            done = Enqueued(await publish(_headers(running, rule)), duplicate=False)
            await running.complete(done.handle)
    except (LeaseLostError, NotRecordedError):
        if done is None:
            raise
    return done  # the job is in the queue, even if its record is not settled


def _call(  # noqa: PLR0917 - what both colours are told
    once: object,
    key: object,
    publish: object,
    name: str,
    ttl: Duration | None,
    policy: Policy | None,
) -> Call | None:
    """Return the call to claim before publishing, or None if the key is empty."""
    if not isinstance(once, Once):
        msg = f"enqueue_once needs a Once to keep its records, not {once!r}"
        raise ConfigurationError(msg)
    if not callable(publish):
        msg = f"enqueue_once needs a function that puts the job into the queue, not {publish!r}"
        raise ConfigurationError(msg)
    made = made_key(key)
    if not made:
        return None
    return Call(
        scope=f"enqueue:{name}" if name else "enqueue",
        key=function_key(made),
        terms=_terms(Policy(ttl=ttl) if ttl else _SILENT, policy or _SILENT, once.policy),
        label=name or "enqueue",
        surface="enqueue",
        cached=False,  # the worker frees the key, so a cached record would be wrong
    )


@lru_cache(maxsize=256)
def _terms(said: Policy, policy: Policy, below: Policy) -> Terms:
    """Return the terms. Cached, since making them costs more than a round trip."""
    # The lease only covers the moment of publishing, whatever lease the jobs themselves have.
    own = Policy(lease=ENQUEUE.lease, heartbeat=ENQUEUE.heartbeat)
    return terms(own.over(said).over(policy).over(below).over(ENQUEUE).over(FUNCTION))


def _headers(running: BaseRun, until: Until) -> Headers:
    if not running.ticket.protected:
        return _NOT_TAGGED
    tag = Tag(running.call.scope, running.call.key, running.record.token, until)
    return {HEADER: tag.text()}
