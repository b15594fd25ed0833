"""arq: run a job that is delivered twice once, and return its first result.

    @once_task(once, key=by_fields("order_id"))
    async def charge(ctx: dict[str, Any], order_id: str) -> str: ...

    class WorkerSettings:
        functions = [charge]

`enqueue_once` does not enqueue two jobs with the same key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast
from uuid import uuid4

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.functions import is_async, name_of
from oncekey.jobs.argument import ContextProtection, protection_of, without_context
from oncekey.jobs.enqueue import (
    Enqueued,
    EnqueueRule,
    Headers,
    Until,
    enqueue_key,
    enqueue_known_async,
)
from oncekey.jobs.job import Job
from oncekey.jobs.protect import KeyFunction
from oncekey.once import Once
from oncekey.policy import Duration

with needing("arq", __name__):
    from arq.constants import (  # pyright: ignore[reportMissingImports]  # its pins disagree with ours
        retry_key_prefix,
    )
    from arq.jobs import (  # pyright: ignore[reportMissingImports]  # as above
        Job as NativeJob,
    )
    from arq.worker import (  # pyright: ignore[reportMissingImports]  # as above
        Retry,
        RetryJob,
    )


class ArqProtection(ContextProtection):
    """A coroutine function that arq runs. Its first argument is the context."""

    control = (Retry, RetryJob)
    context = "the context as its first parameter"

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: KeyFunction,
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        """Raise ConfigurationError for a blocking function: arq awaits them all."""
        if not is_async(function):
            msg = f"{name_of(function)} is no coroutine function, which arq needs"
            raise ConfigurationError(msg)
        super().__init__(once, function, key, name, options)

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002 - as the others
        """Return the context of the job."""
        context = args[0] if args else None
        return context if isinstance(context, dict) and "job_id" in context else None

    def job(self, native: Any, arguments: dict[str, Any]) -> Job:
        """Return the job, without the context."""
        return Job(
            id=native["job_id"],
            name=self.guard.name,
            arguments=without_context(arguments),
            attempt=native["job_try"],
            native=native,
        )

    async def again_async(self, native: Any, seconds: float) -> BaseException:
        """Return the exception by which arq delays the job, at no cost of a try."""
        await native["redis"].decr(f"{retry_key_prefix}{native['job_id']}")
        return cast("BaseException", Retry(defer=seconds))

    def is_over(self, native: Any, error: BaseException) -> bool:  # noqa: ARG002 - as the others
        """Return whether arq does not run the job again."""
        return not isinstance(error, (*self.control, asyncio.CancelledError))


once_task = ArqProtection.decorator
"""Decorate a coroutine function that arq runs."""


async def enqueue_once(
    redis: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
    function_name: str | None = None,
    **options: Any,
) -> Enqueued[Any]:
    """Enqueue the job with these arguments, or return the job with the same key.

    `redis` is what arq's `create_pool` returned. `function` must be protected by `once_task`. `key`
    is a function of the `Job`, or the key itself. With `per`, one job is enqueued in each period of
    that length, whatever `until` and `ttl` say. `function_name` is the name that the worker knows
    the function by, if it is not its own. Other options are those of `enqueue_job`, such as
    `_defer_by`.
    """
    protection = protection_of(function)
    given = dict(kwargs or {})
    if "_job_id" in options:
        msg = "enqueue_once chooses the id of the job: it takes no _job_id"
        raise ConfigurationError(msg)

    async def publish(headers: Headers, handle: str) -> None:
        called = function_name or name_of(function)
        await redis.enqueue_job(called, *args, _job_id=handle, **options, **given, **headers)

    made = enqueue_key(key, protection.enqueued_job(args, given))
    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    own_id = uuid4().hex
    found = await enqueue_known_async(
        protection.once, made, publish, own_id, protection.guard.name, **rule
    )
    queue = options.get("_queue_name") or redis.default_queue_name
    return Enqueued(NativeJob(found.handle, redis, _queue_name=queue), duplicate=found.duplicate)


__all__ = ["enqueue_once", "once_task"]
