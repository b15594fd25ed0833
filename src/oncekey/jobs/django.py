"""Django Tasks: run a task that is enqueued or run twice once, and return its first result.

    @task(takes_context=True)
    @once_task(once, key=by_fields("order_id"))
    def charge(context: TaskContext, order_id: str) -> str: ...

`task` is that of `django.tasks`, or of the package django-tasks before Django 6. `enqueue_once` and
`enqueue_once_async` do not enqueue two tasks with the same key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oncekey.compat import call_blocking_async
from oncekey.errors import ConfigurationError
from oncekey.jobs import enqueue
from oncekey.jobs.argument import ContextProtection, protection_of, without_context
from oncekey.jobs.enqueue import Enqueued, EnqueueRule, Headers, Until, enqueue_key
from oncekey.jobs.job import Job
from oncekey.jobs.protect import KeyFunction
from oncekey.policy import Duration


class DjangoProtection(ContextProtection):
    """A function that a worker of Django Tasks runs, with the context as its first argument.

    Django Tasks cannot run a task later, and nobody retries one: what cannot begin waits in place.
    """

    context = "@task(takes_context=True)"

    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ARG002 - as the others
        """Return the context. Each of the two packages has a class of its own for it."""
        context = args[0] if args else None
        return context if type(context).__name__ == "TaskContext" else None

    def job(self, native: Any, arguments: dict[str, Any]) -> Job:
        """Return the job, without the context."""
        result = native.task_result
        return Job(
            id=str(result.id),
            name=self.guard.name,
            arguments=without_context(arguments),
            attempt=native.attempt,
            queue=result.task.queue_name,
            native=native,
        )


once_task = DjangoProtection.decorator
"""Decorate a function, below `@task(takes_context=True)`."""


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

    `task` is what `@task()` returned for a function that `once_task` protects. `key` is a function
    of the `Job`, or the key itself. With `per`, one task is enqueued in each period of that length,
    whatever `until` and `ttl` say. Its back end must be able to look up results.
    """
    made, name, once = _enqueuing(task, args, kwargs, key)

    def publish(headers: Headers) -> str:
        return str(task.enqueue(*args, **(kwargs or {}), **headers).id)

    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    while True:
        found = enqueue.enqueue_once(once, made, publish, name=name, **rule)
        try:
            return Enqueued(task.get_result(found.handle), duplicate=found.duplicate)
        except Exception as error:
            if not found.duplicate or not _is_gone(error, rule):
                raise
        enqueue.forget_ended(once, made, found.handle, name)


async def enqueue_once_async(
    task: Any,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    key: KeyFunction | str,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
) -> Enqueued[Any]:
    """Do the same as `enqueue_once` on an event loop."""
    made, name, once = _enqueuing(task, args, kwargs, key)

    async def publish(headers: Headers) -> str:
        return str((await task.aenqueue(*args, **(kwargs or {}), **headers)).id)

    rule: EnqueueRule = {"until": until, "ttl": ttl, "per": per}
    while True:
        found = await enqueue.enqueue_once_async(once, made, publish, name=name, **rule)
        try:
            return Enqueued(await task.aget_result(found.handle), duplicate=found.duplicate)
        except Exception as error:
            if not found.duplicate or not _is_gone(error, rule):
                raise
        await call_blocking_async(enqueue.forget_ended, once, made, found.handle, name)


def _is_gone(error: Exception, rule: EnqueueRule) -> bool:
    """Return whether a task that was enqueued is not there, and another one may be enqueued.

    Its transaction was rolled back. With other rules it may have ended and been pruned.
    """
    gone = type(error).__name__ == "TaskResultDoesNotExist"  # each of the two packages has its own
    return gone and rule.get("per") is None and rule.get("until") in {"started", "finished"}


def _enqueuing(
    task: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, key: KeyFunction | str
) -> tuple[str, str, Any]:
    """Return the key of the job, the name of its task, and the Once that keeps the record."""
    protection = protection_of(task.func)
    backend = task.get_backend()
    if not backend.supports_get_result:
        msg = (
            f"enqueue_once returns the result of a task that is enqueued already, and "
            f"{type(backend).__name__} cannot look it up: use another back end, or task.enqueue"
        )
        raise ConfigurationError(msg)
    made = enqueue_key(key, protection.enqueued_job(args, dict(kwargs or {})))
    return made, protection.guard.name, protection.once


__all__ = ["enqueue_once", "enqueue_once_async", "once_task"]
