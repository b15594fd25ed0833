"""SAQ: run a job that is delivered twice once, and return its first result.

    @once_task(once, key=by_fields("order_id"))
    async def charge(ctx: Context, *, order_id: str) -> str: ...

    settings = {"queue": queue, "functions": [charge]}

`enqueue_once` does not enqueue two jobs with the same key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

from oncekey.compat import pause, pause_async
from oncekey.extras import needing
from oncekey.functions import name_of
from oncekey.jobs.argument import (
    SHORTEST,
    ContextProtection,
    PutBackError,
    protection_of,
    without_context,
)
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
from oncekey.policy import Duration

with needing("saq", __name__):
    from saq import (  # pyright: ignore[reportMissingImports]  # its pins disagree with ours
        Job as NativeJob,
    )


_CRON: Final = "cron:"
"""What SAQ puts before the name of a function to make the key of its cron job."""


class SaqProtection(ContextProtection):
    """A function that SAQ runs. Its first argument is the context."""

    context = "the context as its first parameter"

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002 - as the others
        """Return the job in the context."""
        context = args[0] if args else None
        found = context.get("job") if isinstance(context, Mapping) else None
        return found if isinstance(found, NativeJob) else None

    def job(self, native: Any, arguments: dict[str, Any]) -> Job:
        """Return the job, without the context. Its key is the same for all deliveries.

        A cron job has one key for ever. The time at which it was enqueued tells its rounds apart.
        """
        is_cron = native.key.startswith(_CRON)
        return Job(
            id=f"{native.key}:{native.queued}" if is_cron else native.key,
            name=self.guard.name,
            arguments=without_context(arguments),
            attempt=native.attempts,
            queue=native.get_queue().name,
            native=native,
        )

    def longest_pause(self, native: Any) -> float:
        """Return a third of the time limit: the job waits here, as SAQ cannot delay one retry."""
        return min(super().longest_pause(native), (native.timeout or math.inf) / 3)

    def again(self, native: Any, seconds: float) -> BaseException:
        """Wait. Return the error after which SAQ tries the job again, at no cost of a retry."""
        pause(max(seconds, SHORTEST))
        native.attempts -= 1
        return PutBackError(seconds)

    async def again_async(self, native: Any, seconds: float) -> BaseException:
        """Do the same on an event loop."""
        await pause_async(max(seconds, SHORTEST))
        native.attempts -= 1
        return PutBackError(seconds)

    def is_over(self, native: Any, error: BaseException) -> bool:  # noqa: ARG002 - as the others
        """Return whether no retry is left."""
        return not native.retryable


once_task = SaqProtection.decorator
"""Decorate a function that SAQ runs."""


async def enqueue_once(
    queue: Any,
    function: Callable[..., Any],
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

    `function` must be protected by `once_task`. `key` is a function of the `Job`, or the key
    itself. With `per`, one job is enqueued in each period of that length, whatever `until` and
    `ttl` say. `function_name` is the name that the worker knows the function by, if it is not its
    own. Other options are those of SAQ's `Job`, such as `timeout` and `retries`.
    """
    protection = protection_of(function)
    given = dict(kwargs or {})
    called = function_name or name_of(function)

    def made_job(handle: str, headers: Headers) -> Any:
        return NativeJob(called, kwargs={**given, **headers}, key=handle, **options)

    async def publish(headers: Headers, handle: str) -> None:
        await queue.enqueue(made_job(handle, headers))

    made = enqueue_key(key, protection.enqueued_job((), given))
    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    found = await enqueue_known_async(
        protection.once, made, publish, str(uuid4()), protection.guard.name, **rule
    )
    handle = await queue.job(found.handle) or made_job(found.handle, {})
    return Enqueued(handle, duplicate=found.duplicate)


__all__ = ["enqueue_once", "once_task"]
