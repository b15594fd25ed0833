"""The decorator for tasks of Celery: what a worker calls runs once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack, cast

from billiard.exceptions import (  # type: ignore[import-untyped]  # celery has no types
    SoftTimeLimitExceeded,
)
from celery.exceptions import Ignore, Reject, Retry  # type: ignore[import-untyped]  # as above

from oncekey.errors import ConfigurationError
from oncekey.functions import UNSET, checked_function, is_async, name_of
from oncekey.jobs.celery_delivery import Delivery
from oncekey.jobs.celery_request import delivery, job_of, layers, task_now
from oncekey.jobs.guard import Guard, KeyFunction
from oncekey.jobs.job import Job
from oncekey.jobs.keys import by_task_id
from oncekey.once import Once, Reconciler
from oncekey.policy import Policy, PolicyFields

F = TypeVar("F", bound=Callable[..., Any])

_CONTROL: Final = (Retry, Ignore, Reject)


def once_task(  # noqa: PLR0913 - each is an option of its own, and all have defaults
    once: Once,
    key: KeyFunction = by_task_id,
    *,
    scope: str | None = UNSET,
    fingerprint: KeyFunction | None = None,
    reconcile: Reconciler | None = None,
    policy: Policy | None = None,
    **fields: Unpack[PolicyFields],
) -> Callable[[F], F]:
    """A decorator below `@app.task`: jobs with one key run once, and every one returns its result.

    `key` is a function of the `Job`. Keys are kept under the task's name, unless `scope` is given.
    """
    said = {"scope": scope, "fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}

    def decorate(function: F) -> F:
        return cast("F", Protection(once, function, key, {**said, **fields}).wrapper)

    return decorate


class Protection:
    """The function of a task, and how it is protected."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: KeyFunction,
        options: dict[str, Any],
    ) -> None:
        """Every mistake that can be seen without a job shows now."""
        if is_async(checked_function(function)):
            msg = f"{name_of(function)} is a coroutine function, which Celery does not await"
            raise ConfigurationError(msg)
        self.once = once
        self._function = function
        self._key = key
        self._options = options
        self._guards: dict[str, Guard] = {}
        self._own_name = f"{function.__module__}.{name_of(function)}"
        self.guard(self._own_name)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the task's own
            return self._called(args, kwargs)

        # Celery checks arguments by the signature, and does not look through wrappers for it.
        wrapper.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # functions have it
        wrapper.oncekey = self  # type: ignore[attr-defined]  # how it is found on a task
        self.wrapper: Callable[..., Any] = wrapper

    def guard(self, name: str) -> Guard:
        """How the jobs of the task with this name are protected."""
        found = self._guards.get(name)
        if found is None:
            found = Guard(
                self.once,
                self._function,
                name=name,
                key=_id_if_any if self._key is by_task_id else self._key,
                cut_off=(SoftTimeLimitExceeded,),
                control=_CONTROL,
                **self._options,
            )
            self._guards[name] = found
        return found

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the task's own
        running = task_now()
        task = running if running is not None and self.wrapper in layers(running) else None
        request = delivery(task)
        guard = self.guard(self._own_name if task is None else task.name)
        job = job_of(guard.name, request, guard.arguments(args, kwargs))
        if request is not None:
            return Delivery(guard, job, task).run(self._function, args, kwargs)
        if task is None and running is not None:
            if self._inherited_by(running):
                return self._function(*args, **kwargs)
            if self._key is by_task_id:
                msg = (
                    f"{guard.name} runs inside {running.name}, and is not what that task runs: use "
                    f"functools.wraps in the decorators between, or a key made of arguments"
                )
                raise ConfigurationError(msg)
        return guard.run(job, self._function, args, kwargs).value

    def _inherited_by(self, task: Any) -> bool:  # noqa: ANN401 - of an untyped library
        """Whether the task's own class calls this through super()."""
        return any(vars(kind).get("run") is self.wrapper for kind in type(task).__mro__)


def _id_if_any(job: Job) -> str:
    """The id that Celery gave the job. A plain call has none, and runs unprotected."""
    return job.id
