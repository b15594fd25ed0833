"""Deduplicate jobs when they are enqueued: what every adapter for a queue stands on."""

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

# The tag on a job that was deduplicated when it was enqueued: whose record the worker frees.


_log = logging.getLogger("oncekey")

HEADER: Final = "oncekey-enqueued"
"""The header that carries the tag."""

Until = Literal["started", "finished", "succeeded", "ttl"]
"""When a job is no longer a duplicate of one that is enqueued."""

JobMoment = Literal["started", "failed", "succeeded"]

_FREES: Final[dict[Until, tuple[JobMoment, ...]]] = {
    "started": ("started",),
    "finished": ("failed", "succeeded"),
    "succeeded": ("succeeded",),
    "ttl": (),
}


def checked_until(until: object) -> Until:
    """One of the rules."""
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
        """The value of the header."""
        return msgspec.json.encode(self).decode()

    def forget(self) -> Forget:
        """Return the request that frees the record."""
        # By force: the producer may not have settled yet. What it then tries is refused, and that
        # is success too.
        return Forget(self.scope, self.key, token=self.token, force=True)


def read_tag(text: object) -> Tag | None:
    """The tag in a header; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text, type=Tag)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def free_tagged(once: Once, tag: Tag | None, moment: JobMoment) -> None:
    """At this moment another job like it may be enqueued, if the rule says so.

    A store that is down does not fail the job: the ttl frees the key later.
    """
    if tag is None or moment not in _FREES[tag.until]:
        return
    try:
        once.store.forget(tag.forget())
    except OncekeyError as error:
        _log.warning("an enqueued job could not be freed, its ttl will: %s", error)


async def free_tagged_async(once: Once, tag: Tag | None, moment: JobMoment) -> None:
    """The same for coroutines."""
    if tag is None or moment not in _FREES[tag.until]:
        return
    try:
        await once.store_async.forget(tag.forget())
    except OncekeyError as error:
        _log.warning("an enqueued job could not be freed, its ttl will: %s", error)


# The key under which a job is enqueued.


def enqueue_key(key: KeyFunction | str, job: Job) -> str:
    """What the function makes of the job, or the key itself."""
    if isinstance(key, str):
        return key
    if not callable(key) or isinstance(key, type):
        msg = f"enqueue_once needs a key, or a function that makes it of the job, not {key!r}"
        raise ConfigurationError(msg)
    if key is by_task_id:
        msg = "enqueue_once needs a key made of arguments: every job has an id of its own"
        raise ConfigurationError(msg)
    return key(job)


# Deduplicate when a job is enqueued, so that it is not even queued twice.
#
# This saves work and tells the caller which job is meant. It does not replace the protection of the
# handler: a queue may deliver one job twice all the same.
#
# Do not use it inside a database transaction that also decides whether the job exists: the claim is
# not part of that transaction, and would outlive a rollback.


H = TypeVar("H")
Headers = Mapping[str, str]

ENQUEUE: Final = Policy(lease="30s", heartbeat=False, wait="5s", fail_mode="open")
_NOT_TAGGED: Final[Headers] = {}
_SILENT: Final = Policy()


class Enqueued(Struct, Generic[H]):
    """The job's handle, and whether it was enqueued before."""

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
    """The job is in the queue, once.

    `publish` puts it there, with the headers it is given, and returns its handle: an id or another
    plain value, which every duplicate gets. What it raises undoes the claim.
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
    return done  # it is in the queue, and that is what counts


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
    """The job is in the queue, once; `publish` is a coroutine function."""
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
    return done  # it is in the queue, and that is what counts


def _call(  # noqa: PLR0917 - what both colours are told
    once: object,
    key: object,
    publish: object,
    name: str,
    ttl: Duration | None,
    policy: Policy | None,
) -> Call | None:
    """The claim that is made before publishing; None for an empty key."""
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
        cached=False,  # the worker frees the key, and must be believed at once
    )


@lru_cache(maxsize=256)
def _terms(said: Policy, policy: Policy, below: Policy) -> Terms:
    """A producer sends many jobs on few terms, and making them costs more than a round trip."""
    # The lease only bridges the moment of publishing, whatever the jobs themselves have.
    own = Policy(lease=ENQUEUE.lease, heartbeat=ENQUEUE.heartbeat)
    return terms(own.over(said).over(policy).over(below).over(ENQUEUE).over(FUNCTION))


def _headers(running: BaseRun, until: Until) -> Headers:
    if not running.ticket.protected:
        return _NOT_TAGGED
    tag = Tag(running.call.scope, running.call.key, running.record.token, until)
    return {HEADER: tag.text()}
