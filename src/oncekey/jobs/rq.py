"""RQ: run a job that is delivered twice once, and return its first result.

    @once_job(once, key=by_fields("order_id"))
    def charge(order_id: str) -> str: ...

    queue.enqueue(charge, "A-17")

`enqueue_once` does not enqueue two jobs with the same key.
"""

from __future__ import annotations

import functools
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, Unpack, cast
from uuid import uuid4

from msgspec import Struct

from oncekey.compat import pause, pause_async
from oncekey.errors import ConfigurationError, ResultNotKeptError
from oncekey.extras import needing
from oncekey.functions import UNSET, checked_function, is_async, scope_of
from oncekey.jobs.enqueue import (
    HEADER,
    Enqueued,
    EnqueueRule,
    Headers,
    JobMoment,
    Tag,
    Until,
    enqueue_key,
    enqueue_known,
    forget_ended,
    free_tagged,
    free_tagged_async,
    read_tag,
)
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import JobGuard, KeyFunction, comes_again, seconds_until
from oncekey.once import Once, Reconciler
from oncekey.policy import Duration, Policy, PolicyFields

with needing("rq", __name__):
    import rq
    from rq.exceptions import NoSuchJobError
    from rq.job import Job as NativeJob
    from rq.job import JobStatus
    from rq.scheduler import RQScheduler
    from rq.timeouts import JobTimeoutException


if TYPE_CHECKING:
    from rq import Queue


_log = logging.getLogger("oncekey")

_ENTERED: Final = "oncekey_entered"
"""An attribute of a job whose function has begun. A call from inside it is no delivery."""

_IN_PLACE: Final = "sync"
"""The worker name that RQ writes for a job that runs where it is enqueued."""


class RetryAskedError(Exception):
    """Carries a Retry that the function returned past the record, which must not keep it."""

    def __init__(self, retry: rq.Retry) -> None:
        super().__init__("the job asks to be retried")
        self.retry = retry


class Ending(Struct, kw_only=True):
    """The end of a delivery: what RQ gets, after which pause, and what that means for the tag."""

    value: Any = None
    error: BaseException | None = None
    moment: JobMoment | None = None
    pause: float = 0


class RqDelivery:
    """One call of a function: its job, if any, and whether the function has begun."""

    def __init__(
        self,
        guard: JobGuard,
        native: NativeJob | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Make the `Job` for key functions. A plain call has no RQ job and no id."""
        self._guard = guard
        self.native = native
        self.begun = False
        self.tag: Tag | None = None
        self.job = Job(name=guard.name, arguments=guard.arguments(args, kwargs))
        if native is not None:
            self.tag = read_tag(native.meta.get(HEADER))
            self.job.id = own_id(native)
            self.job.attempt = (native.number_of_retries or 0) + 1
            self.job.queue = native.origin
            self.job.native = native

    @property
    def succeeded(self) -> JobMoment | None:
        """What it means for the tag that the function has succeeded: nothing if it is repeated."""
        return None if getattr(self.native, "repeats_left", None) else "succeeded"

    def ended(self, error: BaseException) -> Ending:
        """Return how the delivery ends: with a requested retry, a later try, or a failure."""
        job = self.native
        if isinstance(error, RetryAskedError):
            last = job is not None and (job.number_of_retries or 0) >= error.retry.max
            return Ending(value=error.retry, moment="failed" if last else None)
        if job is None:  # a plain call cannot be put back
            return Ending(error=error)
        if job.worker_name != _IN_PLACE and comes_again(
            error, self._guard, self.job, begun=self.begun
        ):
            return self._put_back(job, seconds_until(error, self._guard), error)
        if isinstance(error, ResultNotKeptError) and not self.begun and not _awaited(job):
            _log.warning("%s[%s] returns None: %s", self.job.name, job.id, error)
            return Ending(moment=self.succeeded)
        return Ending(error=error, moment=None if job.should_retry else "failed")

    def _put_back(self, job: NativeJob, seconds: float, why: BaseException) -> Ending:
        """Return the ending that makes the job come again, after a pause here or a delay in RQ.

        Delays need a worker that runs the scheduler; without one the job would never come again.
        """
        _log.debug("%s[%s] comes back in %.3g s: %s", self.job.name, job.id, seconds, why)
        # RQ counts the retries that functions ask for, and this is not one of them.
        job.number_of_retries = (job.number_of_retries or 0) - 1
        if job.connection.exists(RQScheduler.get_locking_key(job.origin)):
            return Ending(value=rq.Retry(sys.maxsize, interval=max(1, math.ceil(seconds))))
        limit = job.timeout if isinstance(job.timeout, int) and job.timeout > 0 else math.inf
        return Ending(value=rq.Retry(sys.maxsize), pause=min(seconds, limit / 2))


def own_id(job: NativeJob) -> str:
    """Return the id of the job. Each round of a `Repeat` is a job of its own, with one id in RQ."""
    left = getattr(job, "repeats_left", None)  # RQ has it from 2.2 on
    return job.id if left is None else f"{job.id}:{left}"


def delivered(wrapper: Callable[..., Any]) -> NativeJob | None:
    """Return the job if this call is its delivery, or None if the user's code made the call."""
    job = rq.get_current_job()
    if job is None or hasattr(job, _ENTERED) or not runs(job, wrapper):
        return None
    setattr(job, _ENTERED, True)
    return job


def runs(job: NativeJob, wrapper: Callable[..., Any]) -> bool:
    """Return whether the job runs this wrapper, possibly below decorators of the user."""
    return any(one is wrapper for one in _layers(job.func))


def _layers(function: Any) -> Iterator[Any]:
    while function is not None:
        function = getattr(function, "__func__", function)
        yield function
        function = getattr(function, "__wrapped__", None)


def _awaited(job: NativeJob) -> bool:
    """Return whether a callback or another job uses the returned value, so that it must be real."""
    return bool(job.success_callback or job.dependent_ids)


# The decorator for functions that RQ runs.


F = TypeVar("F", bound=Callable[..., Any])

PROTECTION: Final = "oncekey"
"""The attribute of a function that holds its `RqProtection`."""


def once_job(
    once: Once,
    key: KeyFunction = by_task_id,
    *,
    name: str | None = None,
    scope: str | None = UNSET,
    fingerprint: KeyFunction | None = None,
    reconcile: Reconciler | None = None,
    policy: Policy | None = None,
    **fields: Unpack[PolicyFields],
) -> Callable[[F], F]:
    """Decorate a function: run jobs with the same key once, and share the result.

    `key` is a function of the `Job`. Keys are kept under `name`, by default the module and name of
    the function, unless `scope` is given.
    """
    said = {"scope": scope, "fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}

    def decorate(function: F) -> F:
        return cast("F", RqProtection(once, function, key, name, {**said, **fields}).wrapper)

    return decorate


class RqProtection:
    """A function, and how its jobs are protected."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: KeyFunction,
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        """Check everything that can be checked without a job."""
        self.once = once
        self._function = checked_function(function)
        self._key = key
        self.guard = JobGuard(
            once,
            function,
            name=name or scope_of(function),
            key=key,
            cut_off=(JobTimeoutException,),
            control=(RetryAskedError,),
            **options,
        )

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self._deliver(self._delivery(args, kwargs), args, kwargs)

        @functools.wraps(function)
        async def wrapper_async(*args: Any, **kwargs: Any) -> Any:
            delivery = self._delivery(args, kwargs)
            try:
                return await self._deliver_async(delivery, args, kwargs)
            finally:
                if delivery.native is not None:  # RQ makes a loop for each job, and closes none
                    await once.aclose()

        self.wrapper: Callable[..., Any] = wrapper_async if is_async(function) else wrapper
        setattr(self.wrapper, PROTECTION, self)

    def _delivery(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RqDelivery:
        running = rq.get_current_job()
        if self._key is by_task_id and running is not None and not runs(running, self.wrapper):
            msg = (
                f"{self.guard.name} runs inside the job {running.func_name}, and is not what that "
                f"job runs: use functools.wraps in the decorators between, or a key that is made "
                f"of arguments"
            )
            raise ConfigurationError(msg)
        return RqDelivery(self.guard, delivered(self.wrapper), args, kwargs)

    def _has_no_id(self, delivery: RqDelivery) -> bool:
        """Return whether this is a plain call that has no id to be protected by."""
        return delivery.native is None and self._key is by_task_id

    def _deliver(self, delivery: RqDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, or return its first result. Put the job back if it cannot begin."""
        if self._has_no_id(delivery):
            return self._function(*args, **kwargs)

        def begin(*args: Any, **kwargs: Any) -> Any:
            delivery.begun = True
            free_tagged(self.once, delivery.tag, "started")
            return _no_retry(self._function(*args, **kwargs))

        try:
            outcome = self.guard.run(delivery.job, begin, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or means something to RQ
            ending = delivery.ended(error)
        else:
            ending = Ending(value=outcome.value, moment=delivery.succeeded)
            if not delivery.begun:
                free_tagged(self.once, delivery.tag, "started")
        if ending.moment is not None:
            free_tagged(self.once, delivery.tag, ending.moment)
        if ending.error is not None:
            raise ending.error
        pause(ending.pause)
        return ending.value

    async def _deliver_async(
        self, delivery: RqDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Do the same for a coroutine function, for which RQ makes an event loop."""
        if self._has_no_id(delivery):
            return await self._function(*args, **kwargs)

        async def begin(*args: Any, **kwargs: Any) -> Any:
            delivery.begun = True
            await free_tagged_async(self.once, delivery.tag, "started")
            return _no_retry(await self._function(*args, **kwargs))

        try:
            outcome = await self.guard.run_async(delivery.job, begin, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or means something to RQ
            ending = delivery.ended(error)
        else:
            ending = Ending(value=outcome.value, moment=delivery.succeeded)
            if not delivery.begun:
                await free_tagged_async(self.once, delivery.tag, "started")
        if ending.moment is not None:
            await free_tagged_async(self.once, delivery.tag, ending.moment)
        if ending.error is not None:
            raise ending.error
        await pause_async(ending.pause)
        return ending.value


def _no_retry(value: Any) -> Any:
    """Return the value. Raise RetryAskedError if it is a Retry, which is no result to keep."""
    if isinstance(value, rq.Retry):
        raise RetryAskedError(value)
    return value


# Deduplication of jobs at enqueue. Retries do not pass through here.


_ENDED: Final = (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED)
_ENDS: Final[dict[Until, tuple[JobStatus, ...]]] = {
    "started": _ENDED,
    "finished": _ENDED,
    "succeeded": (JobStatus.FINISHED,),
}
"""The states of a job in which another one with its key may be enqueued.

No worker tells where a job was stopped or cancelled, or where its child process was killed.
"""

_REFUSED: Final = ("job_id", "unique", "pipeline")
"""Options of RQ that decide when, or under which id, a job is enqueued."""


def enqueue_once(
    queue: Queue,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    per: Duration | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> Enqueued[NativeJob]:
    """Enqueue the job, or return the job with the same key that was enqueued before.

    `function` must be protected by `once_job`. `key` is a function of the `Job`, or the key itself.
    Other options are those of `queue.enqueue`; `policy` sets how long the record lives at most, and
    with `per` one job is enqueued in each period of that length, whatever `until` says. If
    RQ has lost the first job, a new one is enqueued with `until` "started" or "finished"; with the
    other rules the returned handle has the id of the first job and nothing else.
    """
    protection = _protection(function)
    if wrong := sorted(_REFUSED & options.keys()):
        msg = f"enqueue_once chooses the id and sends the job at once: it takes no {wrong[0]}"
        raise ConfigurationError(msg)
    given = dict(kwargs or {})
    name = protection.guard.name
    made = enqueue_key(key, RqDelivery(protection.guard, None, args, given).job)
    own_id = str(uuid4())
    sent: list[NativeJob] = []

    def publish(headers: Headers, handle: str) -> None:
        meta = {**(options.get("meta") or {}), **headers}
        said = {**options, "meta": meta, "job_id": handle}
        sent.append(queue.enqueue(function, args=args, kwargs=given, **said))

    rule: EnqueueRule = {"until": until, "per": per, "policy": policy}
    while True:
        found = enqueue_known(protection.once, made, publish, own_id, name, **rule)
        if sent:
            return Enqueued(sent[0], duplicate=found.duplicate)
        try:
            first = NativeJob.fetch(found.handle, queue.connection, serializer=queue.serializer)
        except NoSuchJobError:
            first = NativeJob(found.handle, queue.connection, queue.serializer)
            over = until in {"started", "finished"}
        else:
            over = first.get_status(refresh=False) in _ENDS.get(until, ())
        if per is not None or not over:
            return Enqueued(first, duplicate=True)
        forget_ended(protection.once, made, found.handle, name)


def _protection(function: Callable[..., Any]) -> RqProtection:
    """Return the protection of a function that a worker finds by its name.

    Raise ConfigurationError if it has none, or if the worker would find another object.
    """
    found = getattr(function, PROTECTION, None)
    if not isinstance(found, RqProtection):
        msg = (
            f"{function!r} is not protected, and nobody would tell when its job has ended: put "
            f"@once_job on it first"
        )
        raise ConfigurationError(msg)
    there: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        there = getattr(there, part, None)
    same = getattr(there, PROTECTION, None) is found
    if not same:
        msg = (
            f"a worker that looks for {function.__module__}.{function.__qualname__} does not find "
            f"what once_job made of it: use @once_job as a decorator, in a module"
        )
        raise ConfigurationError(msg)
    return found


__all__ = ["enqueue_once", "once_job"]
