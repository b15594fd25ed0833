"""Taskiq: run a task that is delivered twice once, and return its first result.

    @broker.task
    @once_task(once, key=by_fields("order_id"))
    async def charge(order_id: str) -> str: ...

    await charge.kiq("A-17")                                        # protected when it runs
    await enqueue_once(charge, key=by_fields("order_id")).kiq("A-17")  # and when it is sent

There is nothing to add to the broker: Taskiq hands the message to the task as a dependency.
`OnceMiddleware` is for tasks that are deduplicated when they are sent, but not protected.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Final, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from oncekey.compat import pause, pause_async
from oncekey.errors import ConfigurationError, LeaseLostError, ResultNotKeptError
from oncekey.extras import needing
from oncekey.functions import UNSET, Arguments, checked_function, is_async, name_of
from oncekey.jobs.enqueue import (
    HEADER,
    Enqueued,
    EnqueueRule,
    Headers,
    Tag,
    Until,
    checked_until,
    enqueue_key,
    enqueue_known_async,
    free_tagged,
    free_tagged_async,
    read_tag,
)
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import NOT_BEGUN, JobGuard, KeyFunction, comes_again
from oncekey.once import Once, Reconciler
from oncekey.policy import Duration, Policy, PolicyFields

with needing("taskiq", __name__):
    from taskiq import (
        AsyncBroker,
        AsyncResultBackend,
        AsyncTaskiqDecoratedTask,
        AsyncTaskiqTask,
        Context,
        NoResultError,
        TaskiqDepends,
        TaskiqMessage,
        TaskiqMiddleware,
        TaskiqResult,
    )
    from taskiq.exceptions import TaskRejectedError
    from taskiq.kicker import AsyncKicker
    from taskiq_dependencies.dependency import Dependency


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature with evaluated annotations, since they may name a dependency."""
    try:
        return inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001 - annotations are arbitrary code, and Taskiq complains itself
        return inspect.signature(function)


def injected(signature: inspect.Signature) -> frozenset[str]:
    """Return the names of the parameters that Taskiq fills in. They are not part of the job."""
    return frozenset(name for name, one in signature.parameters.items() if _is_injected(one))


def arguments_of_messages(function: Callable[..., Any]) -> Arguments:
    """Return the binder that gives names to the arguments of a message."""
    whole = signature_of(function)
    left_out = injected(whole)
    sent = [one for name, one in whole.parameters.items() if name not in left_out]

    def stand_in() -> None:
        """Do nothing. Only the signature is used."""

    stand_in.__signature__ = whole.replace(parameters=sent)  # type: ignore[attr-defined]  # functions have it
    return Arguments(stand_in)


def _is_injected(parameter: inspect.Parameter) -> bool:
    said = (parameter.default, *getattr(parameter.annotation, "__metadata__", ()))
    return any(isinstance(one, Dependency) or _of_fastapi(one) for one in said)


def _of_fastapi(value: object) -> bool:
    """Return whether it is a dependency of FastAPI, which Taskiq accepts too."""
    return type(value).__module__ == "fastapi.params" and type(value).__name__ == "Depends"


# Freeing of jobs that were deduplicated at enqueue: when a job ends, another one with the same key
# may be enqueued.
#
# Whether a job has ended is known only after Taskiq's own retrying, so a middleware checks it
# there.


class OnceMiddleware(TaskiqMiddleware):
    """Middleware that frees the enqueue key of a job when the job has ended.

    A broker with protected tasks gets one automatically. `once` is for tasks that are not
    protected.
    """

    def __init__(self, once: Once | None = None) -> None:
        """Set the `Once` that keeps the records of tasks that are not protected."""
        super().__init__()
        self._once = once

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        """Free the key of a job that has ended. A job that is tried again has no result yet."""
        tag = read_tag(message.labels.get(HEADER))
        if tag is None or isinstance(result.error, NoResultError):
            return
        task = self.broker.find_task(message.task_name)
        protection = getattr(task, "oncekey", None)
        once = self._once if protection is None else protection.once
        if once is not None:
            await free_tagged_async(once, tag, "failed" if result.is_err else "succeeded")


def free_in(broker: AsyncBroker) -> None:
    """Add an `OnceMiddleware` to the broker, unless it has one."""
    if not any(isinstance(one, OnceMiddleware) for one in broker.middlewares):
        broker.add_middlewares(OnceMiddleware())


# The message of the running job, and how a job is put back into its queue.


_log = logging.getLogger("oncekey")

_PUT_BACK: Final = "X-Taskiq-requeue"
_RETRIES: Final = "_retries"
_PIPELINE: Final = "_pipe_current_step"
"""The label of a step of taskiq-pipelines, which takes a step without a result for a failure."""


class TaskiqDelivery:
    """A message that a worker runs now. In a process pool it has no broker and no event loop."""

    _broker: AsyncBroker | None
    _loop: asyncio.AbstractEventLoop | None

    def __init__(self, message: TaskiqMessage, broker: AsyncBroker) -> None:
        """Remember the message and the running loop. Call this on the event loop of the worker."""
        self.message = message
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._put_back_before = message.labels.get(_PUT_BACK)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the broker and the loop, which other processes cannot use."""
        return {**self.__dict__, "_broker": None, "_loop": None}

    def job(self, arguments: dict[str, Any]) -> Job:
        """Return the job for the delivery, as key functions see it."""
        told = self.message.labels
        return Job(
            id=self.message.task_id,
            name=self.message.task_name,
            arguments=arguments,
            attempt=int(told.get(_RETRIES, 0)) + 1,
            queue=str(told.get("queue_name", "")),
            native=self.message,
        )

    @property
    def tag(self) -> Tag | None:
        """The tag that the job got when it was enqueued."""
        return read_tag(self.message.labels.get(HEADER))

    @property
    def put_back_by_task(self) -> bool:
        """Whether the task itself has put the job back, through Taskiq's context."""
        return self.message.labels.get(_PUT_BACK) != self._put_back_before

    def pause(self, seconds: float) -> float:
        """Return how long the job may wait here before it is tried again.

        That is at most a third of its time limit, and of the time after which the broker would
        deliver it again.
        """
        limits = [float(self.message.labels.get("timeout", "inf"))]
        idle = getattr(self._broker, "idle_timeout", None)  # of Redis streams, in milliseconds
        if idle:
            limits.append(float(idle) / 1000)
        return min(seconds, min(limits) / 3)

    # Asynchronous methods, and the same for a thread

    async def put_back_async(self, why: Exception) -> None:
        """Put the job into its queue again, with the same id and retries. Raise NoResultError then.

        Return without raising if the job cannot be sent again unchanged. It has to wait here then.
        """
        message, broker = self.message, self._broker
        if broker is None or _PIPELINE in message.labels or not _is_plain(_carried(message)):
            return
        times = int(message.labels.get(_PUT_BACK, 0)) + 1
        kicker: AsyncKicker[Any, Any] = AsyncKicker(
            message.task_name, broker, {**message.labels, _PUT_BACK: str(times)}
        )
        try:
            await kicker.with_task_id(message.task_id).kiq(*message.args, **message.kwargs)
        except Exception as error:  # noqa: BLE001 - the client of a broker may raise anything
            _log.warning("%s[%s] was not put back: %s", message.task_name, message.task_id, error)
            return
        _log.debug("%s[%s] was put back: %s", message.task_name, message.task_id, why)
        raise NoResultError

    def put_back(self, why: Exception) -> None:
        """Do the same as `put_back_async` from the thread of a blocking task."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self.put_back_async(why), self._loop).result()

    async def answer_async(self, why: ResultNotKeptError) -> Any:
        """Return the first result if Taskiq has kept it. Otherwise log that and return None.

        A step of a pipeline raises `why` instead of returning None.
        """
        broker, task_id = self._broker, self.message.task_id
        if broker is not None and await broker.result_backend.is_result_ready(task_id):
            found = await broker.result_backend.get_result(task_id)
            if not found.is_err:
                return found.return_value
        return self._nothing(why)

    def answer(self, why: ResultNotKeptError) -> Any:
        """Do the same as `answer_async` from the thread of a blocking task."""
        if self._loop is None:
            return self._nothing(why)
        return asyncio.run_coroutine_threadsafe(self.answer_async(why), self._loop).result()

    def _nothing(self, why: ResultNotKeptError) -> None:
        if _PIPELINE in self.message.labels:  # the next step must not continue from a made-up None
            raise why
        _log.warning("%s[%s] returns None: %s", self.message.task_name, self.message.task_id, why)


def delivery_of(context: Context = TaskiqDepends()) -> TaskiqDelivery:  # noqa: B008 - how Taskiq wants it
    """Return the delivery, as the dependency of a protected task."""
    if HEADER in context.message.labels:
        free_in(context.broker)
    return TaskiqDelivery(context.message, context.broker)


def _carried(message: TaskiqMessage) -> list[Any]:
    return [*message.args, message.kwargs]


def _is_plain(value: object) -> bool:
    """Return whether the value stays the same when it is sent again.

    Taskiq has converted the arguments to the annotated types. What it would send for a model may
    differ from what it had received.
    """
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


# One delivery of a Taskiq job: run it, return its first result, put it back, or fail.


CONTROL: Final = (NoResultError, TaskRejectedError)
"""The exceptions by which a task tells Taskiq what to do."""


class _LaterError(Exception):
    """The job cannot run now, for a reason outside the job."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class TaskiqRun:
    """A delivery and the function that it runs."""

    def __init__(
        self, guard: JobGuard, function: Callable[..., Any], delivery: TaskiqDelivery, job: Job
    ) -> None:
        """Prepare the run. Nothing is claimed yet."""
        self._guard = guard
        self._function = function
        self._delivery = delivery
        self._job = job
        self._begun = False

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the job, or return its first result. Wait or put it back if it cannot run now."""
        while True:
            try:
                return self._tried(args, kwargs)
            except _LaterError as later:
                pause(self._pause(later.why))
                self._delivery.put_back(later.why)

    async def value_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the job, or return its first result. Wait or put it back if it cannot run now."""
        while True:
            try:
                return await self._tried_async(args, kwargs)
            except _LaterError as later:
                await pause_async(self._pause(later.why))
                await self._delivery.put_back_async(later.why)

    def _tried(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._begun = False
        try:
            return self._run(args, kwargs)
        except NOT_BEGUN as error:
            if self._begun:  # the error is about a call inside the job
                raise
            raise _LaterError(error) from None
        except LeaseLostError as error:
            if not comes_again(error, self._guard, self._job, begun=self._begun):
                raise
            raise _LaterError(error) from None
        except ResultNotKeptError as error:
            if self._begun:
                raise
            return self._delivery.answer(error)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the job. Free its enqueue key at the moments that its tag names."""
        try:
            outcome = self._guard.run(self._job, self._begin, args, kwargs)
        except NoResultError:  # the job is over, but the middleware sees no result
            if not self._delivery.put_back_by_task:
                free_tagged(self._guard.once, self._delivery.tag, "failed")
            raise
        if not self._begun:
            free_tagged(self._guard.once, self._delivery.tag, "started")
        return outcome.value

    async def _tried_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._begun = False
        try:
            return await self._run_async(args, kwargs)
        except NOT_BEGUN as error:
            if self._begun:  # the error is about a call inside the job
                raise
            raise _LaterError(error) from None
        except LeaseLostError as error:
            # If the record is gone there is no other attempt to wait for.
            if (
                not self._guard.owns(error, self._job)
                or await self._guard.once.get_async(error.key, scope=error.scope) is None
            ):
                raise
            raise _LaterError(error) from None
        except ResultNotKeptError as error:
            if self._begun:
                raise
            return await self._delivery.answer_async(error)

    async def _run_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the job. Free its enqueue key at the moments that its tag names."""
        try:
            outcome = await self._guard.run_async(self._job, self._begin_async, args, kwargs)
        except NoResultError:  # the job is over, but the middleware sees no result
            if not self._delivery.put_back_by_task:
                await free_tagged_async(self._guard.once, self._delivery.tag, "failed")
            raise
        if not self._begun:
            await free_tagged_async(self._guard.once, self._delivery.tag, "started")
        return outcome.value

    def _begin(self, *args: Any, **kwargs: Any) -> Any:
        self._begun = True
        free_tagged(self._guard.once, self._delivery.tag, "started")
        return self._function(*args, **kwargs)

    async def _begin_async(self, *args: Any, **kwargs: Any) -> Any:
        self._begun = True
        await free_tagged_async(self._guard.once, self._delivery.tag, "started")
        return await self._function(*args, **kwargs)

    def _pause(self, why: Exception) -> float:
        return self._delivery.pause(getattr(why, "retry_after", self._guard.retry_after))


# The decorator for Taskiq tasks.


F = TypeVar("F", bound=Callable[..., Any])

_PARAMETER: Final = "oncekey_delivery"


def once_task(
    once: Once,
    key: KeyFunction = by_task_id,
    *,
    scope: str | None = UNSET,
    fingerprint: KeyFunction | None = None,
    reconcile: Reconciler | None = None,
    policy: Policy | None = None,
    **fields: Unpack[PolicyFields],
) -> Callable[[F], F]:
    """Decorate a task, below `@broker.task`: run jobs with the same key once, and share the result.

    `key` is a function of the `Job`. Keys are kept under the task's name, unless `scope` is given.
    """
    said = {"scope": scope, "fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}

    def decorate(function: F) -> F:
        return cast("F", TaskiqProtection(once, function, key, {**said, **fields}).wrapper)

    return decorate


class TaskiqProtection:
    """The function of a task, and how it is protected."""

    def __init__(
        self, once: Once, function: Callable[..., Any], key: KeyFunction, options: dict[str, Any]
    ) -> None:
        """Check everything that can be checked without a job."""
        self.once = once
        self.key = key
        self.function = checked_function(function)
        self._options = options
        self._guards: dict[str, JobGuard] = {}
        name = getattr(function, "__name__", None) or name_of(function)
        self._own_name = f"{function.__module__}:{name}"  # the name that Taskiq would give it
        self.guard(self._own_name)
        signature = signature_of(function)
        self._injected = injected(signature)
        self._warned = False
        self.wrapper = self._wrapped_async() if is_async(function) else self._wrapped()
        self.wrapper.__signature__ = _with_delivery(signature)  # type: ignore[attr-defined]  # functions have it
        self.wrapper.oncekey = self  # type: ignore[attr-defined]  # how it is found on a task

    def guard(self, name: str) -> JobGuard:
        """Return the guard for the jobs of the task with this name."""
        found = self._guards.get(name)
        if found is None:
            found = JobGuard(
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
        def wrapper(*args: Any, oncekey_delivery: object = None, **kwargs: Any) -> Any:
            if isinstance(oncekey_delivery, TaskiqDelivery):
                return self._run(oncekey_delivery, args, kwargs).value(args, kwargs)
            if self._unprotected():
                return self.function(*args, **kwargs)
            guard = self.guard(self._own_name)
            job = Job(name=guard.name, arguments=self._arguments(guard, args, kwargs))
            return guard.run(job, self.function, args, kwargs).value

        return wrapper

    def _wrapped_async(self) -> Callable[..., Any]:
        @functools.wraps(self.function)
        async def wrapper(*args: Any, oncekey_delivery: object = None, **kwargs: Any) -> Any:
            if isinstance(oncekey_delivery, TaskiqDelivery):
                return await self._run(oncekey_delivery, args, kwargs).value_async(args, kwargs)
            if self._unprotected():
                return await self.function(*args, **kwargs)
            guard = self.guard(self._own_name)
            job = Job(name=guard.name, arguments=self._arguments(guard, args, kwargs))
            return (await guard.run_async(job, self.function, args, kwargs)).value

        return wrapper

    def _unprotected(self) -> bool:
        """Return whether a call without a message has no key, because the key is the job's id."""
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

    def _run(
        self, delivery: TaskiqDelivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> TaskiqRun:
        guard = self.guard(delivery.message.task_name)
        job = delivery.job(self._arguments(guard, args, kwargs))
        return TaskiqRun(guard, self.function, delivery, job)

    def _arguments(
        self, guard: JobGuard, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments by name, without those that Taskiq injects."""
        found = guard.arguments(args, kwargs)
        return {name: value for name, value in found.items() if name not in self._injected}


def _with_delivery(signature: inspect.Signature) -> inspect.Signature:
    """Return the signature with the delivery as a dependency, as Taskiq reads it."""
    own = inspect.Parameter(
        _PARAMETER, inspect.Parameter.KEYWORD_ONLY, default=TaskiqDepends(delivery_of)
    )
    given = list(signature.parameters.values())
    at = len(given) - (bool(given) and given[-1].kind is inspect.Parameter.VAR_KEYWORD)
    return signature.replace(parameters=[*given[:at], own, *given[at:]])


# Deduplication at enqueue, so that a job is not queued twice.


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
    per: Duration | None = ...,
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
    per: Duration | None = ...,
    once: Once | None = ...,
) -> Enqueuing[P, T]: ...
@overload
def enqueue_once(
    task: AsyncTaskiqDecoratedTask[P, R] | AsyncKicker[P, R],
    *,
    key: KeyFunction | str | None = ...,
    until: Until = ...,
    ttl: Duration | None = ...,
    per: Duration | None = ...,
    once: Once | None = ...,
) -> Enqueuing[P, R]: ...
def enqueue_once(
    task: AsyncTaskiqDecoratedTask[P, Any] | AsyncKicker[P, Any],
    *,
    key: KeyFunction | str | None = None,
    until: Until = "finished",
    ttl: Duration | None = None,
    per: Duration | None = None,
    once: Once | None = None,
) -> Enqueuing[P, Any]:
    """Return an object with a `kiq` method that sends jobs of the task, or of its kicker, once.

    `key` is a function of the `Job`, which has no id yet, or the key itself; the default is the
    task's own. `until` sets when another job with the same key may be enqueued, and `ttl` when it
    may be at the latest; with `per`, one job is enqueued in each period of that length. A task that
    is not protected needs `once`, and an `OnceMiddleware` at its broker.
    """
    return Enqueuing(task, key, {"until": checked_until(until), "ttl": ttl, "per": per}, once)


class Enqueuing(Generic[P, R]):
    """Sends jobs of one task, unless a job with the same key was sent."""

    def __init__(
        self,
        task: AsyncTaskiqDecoratedTask[P, Any] | AsyncKicker[P, Any],
        key: KeyFunction | str | None,
        rule: EnqueueRule,
        once: Once | None,
    ) -> None:
        """Check everything that can be checked without a job."""
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
        self._rule = rule

    async def kiq(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued[AsyncTaskiqTask[R]]:
        """Send the job, or return the handle of the job with the same key that was sent before."""
        kicker = self._kicker
        task_id = kicker.custom_task_id or kicker.broker.id_generator()
        job = Job(name=self._name, arguments=self._arguments.bind(*args, **kwargs))

        async def publish(headers: Headers, handle: str) -> None:
            again: AsyncKicker[Any, Any] = AsyncKicker(
                self._name, kicker.broker, {**kicker.labels, **headers}, kicker.return_type
            )
            await again.with_task_id(handle).kiq(*args, **kwargs)

        made = enqueue_key(self._key, job)
        found = await enqueue_known_async(
            self._once, made, publish, task_id, self._name, **self._rule
        )
        results = cast("AsyncResultBackend[R]", kicker.broker.result_backend)
        handle = AsyncTaskiqTask(found.handle, results, kicker.return_type)
        return Enqueued(handle, duplicate=found.duplicate)


__all__ = ["Enqueuing", "OnceMiddleware", "enqueue_once", "once_task"]
