"""Procrastinate: run a job that is delivered twice once.

    @app.task(pass_context=True, retry=3)
    @once_task(once, key=by_fields("order_id"))
    def charge(context: JobContext, order_id: str) -> str: ...

`enqueue_once` and `enqueue_once_async` do not defer two jobs with the same key.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.jobs import enqueue
from oncekey.jobs.argument import ContextProtection, PutBackError, protection_of, without_context
from oncekey.jobs.enqueue import Enqueued, EnqueueRule, Headers, Until, enqueue_key
from oncekey.jobs.job import Job
from oncekey.jobs.protect import KeyFunction
from oncekey.policy import Duration

with needing("procrastinate", __name__):
    from procrastinate import BaseRetryStrategy, JobContext, RetryDecision
    from procrastinate.exceptions import JobAborted, JobRetry
    from procrastinate.job_context import AbortReason

_log = logging.getLogger("oncekey")

_NOT_TRIED: Final = (
    "UPDATE procrastinate_jobs SET attempts = attempts - 1 WHERE id = %(id)s AND status = 'doing'"
)
"""Takes back the attempt that Procrastinate counts when a job is retried."""


class PutBackStrategy(BaseRetryStrategy):
    """The retry strategy of a task, which lets jobs come back that could not begin, too."""

    def __init__(self, strategy: BaseRetryStrategy | None) -> None:
        """Take the strategy of the task itself, or None if it is not retried."""
        self._strategy = strategy

    def get_retry_exception(self, exception: BaseException, job: Any) -> JobRetry | None:
        """Return the exception that says when the job is tried again, or None if it is not."""
        if isinstance(exception, PutBackError):
            at = datetime.now(UTC) + timedelta(seconds=exception.seconds)
            return JobRetry(RetryDecision(retry_at=at))
        if self._strategy is None:
            return None
        return self._strategy.get_retry_exception(exception, job)


class ProcrastinateProtection(ContextProtection):
    """A function that Procrastinate runs. With `pass_context=True` it gets the context first."""

    control = (JobAborted,)
    context = "@app.task(pass_context=True)"

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002 - as the others
        """Return the context of the job."""
        return args[0] if args and isinstance(args[0], JobContext) else None

    def job(self, native: Any, arguments: dict[str, Any]) -> Job:
        """Return the job, without the context."""
        return Job(
            id=str(native.job.id),
            name=self.guard.name,
            arguments=without_context(arguments),
            attempt=native.job.attempts + 1,
            queue=native.job.queue,
            native=native,
        )

    def again(self, native: Any, seconds: float) -> BaseException:
        """Return the error after which Procrastinate retries the job, at no cost of an attempt."""
        try:
            native.app.connector.get_sync_connector().execute_query(_NOT_TRIED, id=native.job.id)
        except Exception as error:  # noqa: BLE001 - it only costs an attempt
            _log.debug("putting job %s back costs an attempt: %s", native.job.id, error)
        return _put_back(native, seconds)

    async def again_async(self, native: Any, seconds: float) -> BaseException:
        """Do the same on an event loop."""
        try:
            await native.app.connector.execute_query_async(_NOT_TRIED, id=native.job.id)
        except Exception as error:  # noqa: BLE001 - it only costs an attempt
            _log.debug("putting job %s back costs an attempt: %s", native.job.id, error)
        return _put_back(native, seconds)

    def is_over(self, native: Any, error: BaseException) -> bool:
        """Return whether Procrastinate does not retry the job."""
        if isinstance(error, JobAborted) and native.abort_reason() is not AbortReason.SHUTDOWN:
            return True
        return native.task.get_retry_exception(exception=error, job=native.job) is None


def _put_back(native: Any, seconds: float) -> PutBackError:
    """Return the error that puts the job back, and let the strategy of its task know it."""
    task = native.task
    if not isinstance(task.retry_strategy, PutBackStrategy):
        task.retry_strategy = PutBackStrategy(task.retry_strategy)
    return PutBackError(seconds)


once_task = ProcrastinateProtection.decorator
"""Decorate a function, below `@app.task(pass_context=True)`."""


def enqueue_once(
    task: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
    **options: Any,
) -> Enqueued[int]:
    """Defer a job with these arguments, or return the id of the one with the same key.

    `task` is what `@app.task()` returned for a function that `once_task` protects. `key` is a
    function of the `Job`, or the key itself. With `per`, one job is deferred in each period of that
    length, whatever `until` and `ttl` say. Other options are those of `task.configure`, but for
    `connection`: the record would outlive a transaction that is rolled back.
    """
    made, name, once = _enqueuing(task, kwargs, key, options)

    def publish(headers: Headers) -> int:
        found: int = task.configure(**options).defer(**(kwargs or {}), **headers)
        return found

    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    return enqueue.enqueue_once(once, made, publish, name=name, **rule)


async def enqueue_once_async(
    task: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
    **options: Any,
) -> Enqueued[int]:
    """Do the same as `enqueue_once` on an event loop."""
    made, name, once = _enqueuing(task, kwargs, key, options)

    async def publish(headers: Headers) -> int:
        found: int = await task.configure(**options).defer_async(**(kwargs or {}), **headers)
        return found

    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    return await enqueue.enqueue_once_async(once, made, publish, name=name, **rule)


def _enqueuing(
    task: Any,
    kwargs: Mapping[str, Any] | None,
    key: KeyFunction | str,
    options: Mapping[str, Any],
) -> tuple[str, str, Any]:
    """Return the key of the job, the name of its task, and the Once that keeps the record."""
    if options.get("connection") is not None:
        msg = (
            "enqueue_once cannot be part of a transaction, which its record would outlive: put the "
            "job into an inbox.atomic block of that connection instead"
        )
        raise ConfigurationError(msg)
    protection = protection_of(task.func)
    made = enqueue_key(key, protection.enqueued_job((), dict(kwargs or {})))
    return made, protection.guard.name, protection.once


__all__ = ["enqueue_once", "enqueue_once_async", "once_task"]
