"""Deduplication of jobs when they are enqueued, which all queue adapters share."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final, Generic, Literal, TypedDict, TypeVar, Unpack, get_args

import msgspec
from msgspec import Struct

from oncekey.compat import invoke, invoke_async
from oncekey.core.call import Call
from oncekey.core.key import function_key
from oncekey.core.requests import Forget
from oncekey.engine import run, run_async
from oncekey.engine.run_base import BaseRun
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    LeaseLostError,
    NotRecordedError,
    OncekeyError,
)
from oncekey.functions import made_key
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import KeyFunction
from oncekey.once import Once
from oncekey.policy import FUNCTION, Duration, Policy, Terms, seconds, terms

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
KNOWN: Final = Policy(wait="1s").over(ENQUEUE)
"""The default policy of a job whose id is known: after the wait it is put into the queue again."""
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
    per: Duration | None = None,
    policy: Policy | None = None,
) -> Enqueued[H]:
    """Enqueue the job unless one with the same key was enqueued. Return its handle.

    `publish` puts the job into the queue with the headers it is given, and returns its handle: an
    id or another plain value, which every duplicate gets. If it raises, the claim is undone. With
    an empty key the job is always enqueued. With `per`, one job is enqueued in each period of that
    length, whatever `until` and `ttl` say.
    """
    enqueuing = EnqueueCall(once, key, publish, name, until=until, ttl=ttl, per=per, policy=policy)
    return enqueuing.run(publish)


async def enqueue_once_async(
    once: Once,
    key: str,
    publish: Callable[[Headers], Awaitable[H]],
    *,
    name: str = "",
    ttl: Duration | None = None,
    until: Until = "finished",
    per: Duration | None = None,
    policy: Policy | None = None,
) -> Enqueued[H]:
    """Do the same as `enqueue_once`, with a coroutine function as `publish`."""
    enqueuing = EnqueueCall(once, key, publish, name, until=until, ttl=ttl, per=per, policy=policy)
    return await enqueuing.run_async(publish)


def enqueue_known(
    once: Once,
    key: str,
    publish: Callable[[Headers, str], object],
    handle: str,
    name: str,
    **rule: Unpack[EnqueueRule],
) -> Enqueued[str]:
    """Do the same as `enqueue_once` for a job whose id is known before it is enqueued.

    `publish` gets the headers and the id. If a producer has claimed the key, but has not recorded
    that its job is in the queue, put that job into the queue again, under its own id: the producer
    may have died before or after it did so.
    """
    enqueuing = EnqueueCall(once, key, publish, name, handle=handle, **rule)

    def publish_own(headers: Headers) -> str:
        publish(headers, handle)
        return handle

    while True:
        try:
            return enqueuing.run(publish_own)
        except InProgressError:
            found = once.get(enqueuing.key, scope=enqueuing.scope)
            if found is not None and found.status == "running":
                if not found.reference:
                    raise
                publish(enqueuing.headers(found.token), found.reference)
                return Enqueued(found.reference, duplicate=True)


async def enqueue_known_async(
    once: Once,
    key: str,
    publish: Callable[[Headers, str], Awaitable[object]],
    handle: str,
    name: str,
    **rule: Unpack[EnqueueRule],
) -> Enqueued[str]:
    """Do the same as `enqueue_known`, with a coroutine function as `publish`."""
    enqueuing = EnqueueCall(once, key, publish, name, handle=handle, **rule)

    async def publish_own(headers: Headers) -> str:
        await publish(headers, handle)
        return handle

    while True:
        try:
            return await enqueuing.run_async(publish_own)
        except InProgressError:
            found = await once.get_async(enqueuing.key, scope=enqueuing.scope)
            if found is not None and found.status == "running":
                if not found.reference:
                    raise
                await publish(enqueuing.headers(found.token), found.reference)
                return Enqueued(found.reference, duplicate=True)


def forget_ended(once: Once, key: str, handle: str, name: str, per: Duration | None = None) -> None:
    """Forget the record of a job of which the queue knows that it is over, or that it is lost.

    If the record is another job's by now, do nothing.
    """
    record = once.get(function_key(period_key(key, per)), scope=enqueue_scope(name))
    if record is not None and record.value == handle:
        once.store.forget(Forget(record.scope, record.key, token=record.token, force=False))


def enqueue_scope(name: str) -> str:
    """Return the scope under which the jobs of a task are enqueued."""
    return f"enqueue:{name}" if name else "enqueue"


def period_key(key: str, per: Duration | None) -> str:
    """Return the key with the number of the current period, if there are periods.

    Periods begin half way between multiples of their length since 1970: two schedulers that fire on
    the hour agree on the hour, although one clock is a little ahead of the other.
    """
    if not key or per is None:
        return key
    return f"{key}@{math.floor(time.time() / seconds(per, 'per') + 0.5)}"


class EnqueueRule(TypedDict, total=False):
    """When another job with the same key may be enqueued."""

    until: Until
    ttl: Duration | None
    per: Duration | None
    policy: Policy | None


class EnqueueCall:
    """A job that is to be enqueued, and the rule by which another one may be."""

    def __init__(
        self,
        once: object,
        key: object,
        publish: object,
        name: str,
        *,
        handle: str = "",
        until: Until = "finished",
        ttl: Duration | None = None,
        per: Duration | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Check everything that can be checked without the queue."""
        if not isinstance(once, Once):
            msg = f"enqueue_once needs a Once to keep its records, not {once!r}"
            raise ConfigurationError(msg)
        if not callable(publish):
            msg = f"enqueue_once needs a function that puts the job into the queue, not {publish!r}"
            raise ConfigurationError(msg)
        self._once = once
        self._until: Until = checked_until(until)
        if per is not None:  # the record outlasts its period, and the next one has another key
            self._until, ttl = "ttl", 2 * seconds(per, "per")
        made = period_key(made_key(key), per)
        self.scope = enqueue_scope(name)
        self.key = function_key(made) if made else ""
        said = Policy(ttl=ttl) if ttl else _SILENT
        base = KNOWN if handle else ENQUEUE
        self._call = Call(
            scope=self.scope,
            key=self.key,
            terms=_terms(said, policy or _SILENT, once.policy, base),
            label=name or "enqueue",
            reference=handle,
            surface="enqueue",
            cached=False,  # the worker frees the key, so a cached record would be wrong
        )

    def headers(self, token: int) -> Headers:
        """Return the headers of the job that has the record with this token."""
        return {HEADER: Tag(self.scope, self.key, token, self._until).text()}

    def run(self, publish: Callable[[Headers], H]) -> Enqueued[H]:
        """Enqueue the job, or return the handle of the one with the same key."""
        if not self.key:
            return Enqueued(invoke(publish, _NOT_TAGGED), duplicate=False)
        core, active, call = self._once.use(self._call, self._call.terms)
        done: Enqueued[H] | None = None
        try:
            with run.enter(core.engine(), call, active=active) as running:
                if running.ticket.duplicate:
                    return Enqueued(running.result, duplicate=True)
                done = Enqueued(invoke(publish, self._tagged(running)), duplicate=False)
                running.complete(done.handle)
        except (LeaseLostError, NotRecordedError):
            if done is None:
                raise
        return done  # the job is in the queue, even if its record is not settled

    async def run_async(self, publish: Callable[[Headers], Awaitable[H]]) -> Enqueued[H]:
        """Do the same, with a coroutine function as `publish`."""
        if not self.key:
            return Enqueued(await invoke_async(publish, _NOT_TAGGED), duplicate=False)
        core, active, call = self._once.use(self._call, self._call.terms)
        done: Enqueued[H] | None = None
        try:
            async with await run_async.enter(core.engine_async(), call, active=active) as running:
                if running.ticket.duplicate:
                    return Enqueued(running.result, duplicate=True)
                handle = await invoke_async(publish, self._tagged(running))
                done = Enqueued(handle, duplicate=False)
                await running.complete(done.handle)
        except (LeaseLostError, NotRecordedError):
            if done is None:
                raise
        return done  # the job is in the queue, even if its record is not settled

    def _tagged(self, running: BaseRun) -> Headers:
        """Return the headers of this job. While the store is down it is enqueued without a tag."""
        return self.headers(running.record.token) if running.ticket.protected else _NOT_TAGGED


@lru_cache(maxsize=256)
def _terms(said: Policy, policy: Policy, below: Policy, base: Policy) -> Terms:
    """Return the terms. Cached, since making them costs more than a round trip."""
    # The lease only covers the moment of publishing, whatever lease the jobs themselves have.
    own = Policy(lease=ENQUEUE.lease, heartbeat=ENQUEUE.heartbeat)
    return terms(own.over(said).over(policy).over(below).over(base).over(FUNCTION))
