"""Deduplicate when a job of Taskiq is sent, so that it is not even queued twice."""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from taskiq import AsyncResultBackend, AsyncTaskiqDecoratedTask, AsyncTaskiqTask
from taskiq.kicker import AsyncKicker

from oncekey.errors import ConfigurationError
from oncekey.jobs.enqueue import Enqueued, Headers, enqueue_once_async
from oncekey.jobs.enqueue_key import enqueue_key
from oncekey.jobs.guard import KeyFunction
from oncekey.jobs.job import Job
from oncekey.jobs.keys import by_task_id
from oncekey.jobs.tag import Until, checked_until
from oncekey.jobs.taskiq_arguments import arguments_of_messages
from oncekey.once import Once
from oncekey.policy import Duration

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@overload
def enqueue_once(
    task: AsyncTaskiqDecoratedTask[P, CoroutineType[Any, Any, T]]
    | AsyncKicker[P, CoroutineType[Any, Any, T]],
    *,
    key: KeyFunction | str | None = ...,
    until: Until = ...,
    ttl: Duration | None = ...,
    once: Once | None = ...,
) -> Enqueuing[P, T]: ...
@overload
def enqueue_once(
    task: AsyncTaskiqDecoratedTask[P, Coroutine[Any, Any, T]]
    | AsyncKicker[P, Coroutine[Any, Any, T]],
    *,
    key: KeyFunction | str | None = ...,
    until: Until = ...,
    ttl: Duration | None = ...,
    once: Once | None = ...,
) -> Enqueuing[P, T]: ...
@overload
def enqueue_once(
    task: AsyncTaskiqDecoratedTask[P, R] | AsyncKicker[P, R],
    *,
    key: KeyFunction | str | None = ...,
    until: Until = ...,
    ttl: Duration | None = ...,
    once: Once | None = ...,
) -> Enqueuing[P, R]: ...
def enqueue_once(
    task: AsyncTaskiqDecoratedTask[P, Any] | AsyncKicker[P, Any],
    *,
    key: KeyFunction | str | None = None,
    until: Until = "finished",
    ttl: Duration | None = None,
    once: Once | None = None,
) -> Enqueuing[P, Any]:
    """The way to send jobs of the task, or of its kicker, once: with `kiq`, as Taskiq has it.

    `key` is a function of the `Job`, which has no id yet, or the key itself; without one it is the
    task's own. `until` says when another job like it may be enqueued, and `ttl` when it may be at
    the latest. A task that is not protected needs `once`, and an `OnceMiddleware` at its broker.
    """
    return Enqueuing(task, key, until, ttl, once)


class Enqueuing(Generic[P, R]):
    """Sends jobs of one task, each unless one like it was sent."""

    def __init__(
        self,
        task: AsyncTaskiqDecoratedTask[P, Any] | AsyncKicker[P, Any],
        key: KeyFunction | str | None,
        until: Until,
        ttl: Duration | None,
        once: Once | None,
    ) -> None:
        """Every mistake that can be seen without a job shows now."""
        self._kicker = task if isinstance(task, AsyncKicker) else task.kicker()
        self._name = self._kicker.task_name
        found = self._kicker.broker.find_task(self._name)
        if found is None:
            msg = f"{self._name} is no task of its broker here, so that its arguments have no names"
            raise ConfigurationError(msg)
        protection = getattr(found, "oncekey", None)
        self._arguments = arguments_of_messages(
            found.original_func if protection is None else protection.function
        )
        at = once or getattr(protection, "once", None)
        if at is None:
            msg = f"{self._name} is not protected: say with once=... where its records are kept"
            raise ConfigurationError(msg)
        made_by: KeyFunction | str = getattr(protection, "key", by_task_id) if key is None else key
        usable = callable(made_by) or isinstance(made_by, str)
        if made_by is by_task_id or not usable:
            msg = f"enqueue_once needs a key made of arguments: a job of {self._name} has no id yet"
            raise ConfigurationError(msg)
        self._once: Once = at
        self._key = made_by
        self._until: Until = checked_until(until)
        self._ttl = ttl

    async def kiq(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[AsyncTaskiqTask[R]]:
        """The job is sent, or one like it was: then the handle is that job's."""
        kicker = self._kicker
        task_id = kicker.custom_task_id or kicker.broker.id_generator()
        job = Job(name=self._name, arguments=self._arguments.bind(args, kwargs))

        async def publish(headers: Headers) -> str:
            again: AsyncKicker[Any, Any] = AsyncKicker(
                self._name, kicker.broker, {**kicker.labels, **headers}, kicker.return_type
            )
            await again.with_task_id(task_id).kiq(*args, **kwargs)
            return task_id

        found = await enqueue_once_async(
            self._once,
            enqueue_key(self._key, job),
            publish,
            name=self._name,
            until=self._until,
            ttl=self._ttl,
        )
        results = cast("AsyncResultBackend[R]", kicker.broker.result_backend)
        handle = AsyncTaskiqTask(found.handle, results, kicker.return_type)
        return Enqueued(handle, duplicate=found.duplicate)
