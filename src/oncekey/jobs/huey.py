"""Huey: run a task that is enqueued or delivered twice once, and return its first result.

    @huey.task(context=True)
    @once_task(once, key=by_fields("order_id"))
    def charge(order_id: str) -> str: ...

`enqueue_once` does not enqueue two tasks with the same key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from uuid import uuid4

from oncekey.extras import needing
from oncekey.jobs.argument import ArgumentProtection, protection_of
from oncekey.jobs.enqueue import (
    Enqueued,
    EnqueueRule,
    Headers,
    Until,
    enqueue_key,
    enqueue_known,
)
from oncekey.jobs.job import Job
from oncekey.jobs.protect import KeyFunction
from oncekey.policy import Duration

with needing("huey", __name__):
    from huey.api import Result, Task  # type: ignore[import-untyped]  # huey has no types
    from huey.exceptions import (  # type: ignore[import-untyped]  # huey has no types
        CancelExecution,
        RateLimitExceeded,
        RetryTask,
        TaskLockedException,
        TaskTimeout,
    )


class HueyProtection(ArgumentProtection):
    """A function that Huey runs. With `context=True` it gets the task as a keyword."""

    control = (RetryTask, CancelExecution, TaskLockedException, RateLimitExceeded)
    cut_off = (TaskTimeout,)
    context = "@huey.task(context=True)"

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002 - as the others
        """Return Huey's task. A function that has no parameter for it does not get it."""
        found = kwargs.get("task")
        if not isinstance(found, Task):
            return None
        if not self.guard.takes("task"):
            del kwargs["task"]
        return found

    def job(self, native: Any, arguments: dict[str, Any]) -> Job:
        """Return the job. Huey counts the retries that are left, and not the attempts."""
        arguments.pop("task", None)
        return Job(id=native.id, name=self.guard.name, arguments=arguments, native=native)

    def again(self, native: Any, seconds: float) -> BaseException:  # noqa: ARG002 - as the others
        """Return the exception by which Huey schedules the task again, at no cost of a retry."""
        return cast("BaseException", RetryTask(delay=seconds))

    def is_over(self, native: Any, error: BaseException) -> bool:
        """Return whether no retry is left."""
        return not native.retries and not isinstance(error, RetryTask)


once_task = HueyProtection.decorator
"""Decorate a function, below `@huey.task(context=True)`."""


def enqueue_once(
    task: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
) -> Enqueued[Any]:
    """Enqueue the task with these arguments, or return the result of the one with the same key.

    `task` is what `@huey.task()` returned for a function that `once_task` protects. `key` is a
    function of the `Job`, or the key itself. With `per`, one task is enqueued in each period of
    that length, whatever `until` and `ttl` say.
    """
    protection = protection_of(task.func)
    given = dict(kwargs or {})
    sent: list[Any] = []

    def publish(headers: Headers, handle: str) -> None:
        made = task.s(*args, **given, **headers)
        made.id = handle
        sent.append(task.huey.enqueue(made))

    made = enqueue_key(key, protection.enqueued_job(args, given))
    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    found = enqueue_known(
        protection.once, made, publish, str(uuid4()), protection.guard.name, **rule
    )
    result = sent[0] if sent else Result(task.huey, Task(id=found.handle))
    return Enqueued(result, duplicate=found.duplicate)


__all__ = ["enqueue_once", "once_task"]
