"""The decorator for tasks of Taskiq: what a worker calls runs once."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack, cast

from taskiq import TaskiqDepends

from oncekey.functions import UNSET, checked_function, is_async, name_of
from oncekey.jobs.guard import Guard, KeyFunction
from oncekey.jobs.job import Job
from oncekey.jobs.keys import by_task_id
from oncekey.jobs.taskiq_arguments import injected, signature_of
from oncekey.jobs.taskiq_delivery import Delivery, delivery_of
from oncekey.jobs.taskiq_run import CONTROL, Run
from oncekey.once import Once, Reconciler
from oncekey.policy import Policy, PolicyFields

F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("oncekey")

_PARAMETER: Final = "oncekey_delivery"


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
    """A decorator below `@broker.task`: jobs with one key run once; each returns its result.

    `key` is a function of the `Job`. Keys are kept under the task's name, unless `scope` is given.
    """
    said = {"scope": scope, "fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}

    def decorate(function: F) -> F:
        return cast("F", Protection(once, function, key, {**said, **fields}).wrapper)

    return decorate


class Protection:
    """The function of a task, and how it is protected."""

    def __init__(
        self, once: Once, function: Callable[..., Any], key: KeyFunction, options: dict[str, Any]
    ) -> None:
        """Every mistake that can be seen without a job shows now."""
        self.once = once
        self.key = key
        self.function = checked_function(function)
        self._options = options
        self._guards: dict[str, Guard] = {}
        name = getattr(function, "__name__", None) or name_of(function)
        self._own_name = f"{function.__module__}:{name}"  # as Taskiq would name it
        self.guard(self._own_name)
        signature = signature_of(function)
        self._injected = injected(signature)
        self._warned = False
        self.wrapper = self._wrapped_async() if is_async(function) else self._wrapped()
        self.wrapper.__signature__ = _with_delivery(signature)  # type: ignore[attr-defined]  # functions have it
        self.wrapper.oncekey = self  # type: ignore[attr-defined]  # how it is found on a task

    def guard(self, name: str) -> Guard:
        """How the jobs of the task with this name are protected."""
        found = self._guards.get(name)
        if found is None:
            found = Guard(
                self.once,
                self.function,
                name=name,
                key=self.key,
                control=CONTROL,
                **self._options,
            )
            self._guards[name] = found
        return found

    def _wrapped(self) -> Callable[..., Any]:
        @functools.wraps(self.function)
        def wrapper(*args: Any, oncekey_delivery: object = None, **kwargs: Any) -> Any:  # noqa: ANN401 - the task's own
            if isinstance(oncekey_delivery, Delivery):
                return self._run(oncekey_delivery, args, kwargs).value(args, kwargs)
            if self._unprotected():
                return self.function(*args, **kwargs)
            guard = self.guard(self._own_name)
            job = Job(name=guard.name, arguments=self._arguments(guard, args, kwargs))
            return guard.run(job, self.function, args, kwargs).value

        return wrapper

    def _wrapped_async(self) -> Callable[..., Any]:
        @functools.wraps(self.function)
        async def wrapper(*args: Any, oncekey_delivery: object = None, **kwargs: Any) -> Any:  # noqa: ANN401 - the task's own
            if isinstance(oncekey_delivery, Delivery):
                return await self._run(oncekey_delivery, args, kwargs).value_async(args, kwargs)
            if self._unprotected():
                return await self.function(*args, **kwargs)
            guard = self.guard(self._own_name)
            job = Job(name=guard.name, arguments=self._arguments(guard, args, kwargs))
            return (await guard.run_async(job, self.function, args, kwargs)).value

        return wrapper

    def _unprotected(self) -> bool:
        """Whether a call that is no delivery has no key: there is no id to make it from."""
        if self.key is not by_task_id:
            return False
        if not self._warned:
            self._warned = True
            msg = (
                "%s runs unprotected: it was called without a message of Taskiq. Send it with "
                "kiq(), and use functools.wraps in decorators between it and @broker.task"
            )
            _log.warning(msg, self._own_name)
        return True

    def _run(self, delivery: Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
        guard = self.guard(delivery.message.task_name)
        job = delivery.job(self._arguments(guard, args, kwargs))
        return Run(guard, self.function, delivery, job)

    def _arguments(
        self, guard: Guard, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments by name, without what Taskiq injects."""
        found = guard.arguments(args, kwargs)
        return {name: value for name, value in found.items() if name not in self._injected}


def _with_delivery(signature: inspect.Signature) -> inspect.Signature:
    """The signature as Taskiq reads it: the task depends on its delivery."""
    own = inspect.Parameter(
        _PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=TaskiqDepends(delivery_of)
    )
    given = list(signature.parameters.values())
    at = len(given) - (bool(given) and given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return signature.replace(parameters=[*given[:at], own, *given[at:]])
