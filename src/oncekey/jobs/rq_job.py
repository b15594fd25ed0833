"""The decorator for functions that RQ runs: what a worker calls runs once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack, cast

import rq
from rq.timeouts import JobTimeoutException

from oncekey.compat import pause, pause_async
from oncekey.errors import ConfigurationError
from oncekey.functions import UNSET, checked_function, is_async, scope_of
from oncekey.jobs.guard import Guard, KeyFunction
from oncekey.jobs.keys import by_task_id
from oncekey.jobs.rq_delivery import Delivery, Ending, RetryAskedError, delivered, runs
from oncekey.jobs.tag import free, free_async
from oncekey.once import Once, Reconciler
from oncekey.policy import Policy, PolicyFields

F = TypeVar("F", bound=Callable[..., Any])

PROTECTION: Final = "oncekey"
"""Under this name a function knows how it is protected."""


def once_job(  # noqa: PLR0913 - each is an option of its own, and all have defaults
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
    """A decorator: jobs with one key run once, and every one returns its result.

    `key` is a function of the `Job`. Keys are kept under `name`, by default the module and name of
    the function, unless `scope` is given.
    """
    said = {"scope": scope, "fingerprint": fingerprint, "reconcile": reconcile, "policy": policy}

    def decorate(function: F) -> F:
        return cast("F", Protection(once, function, key, name, {**said, **fields}).wrapper)

    return decorate


class Protection:
    """A function, and how its jobs are protected."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: KeyFunction,
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        """Every mistake that can be seen without a job shows now."""
        self.once = once
        self._function = checked_function(function)
        self._key = key
        self.guard = Guard(
            once,
            function,
            name=name or scope_of(function),
            key=key,
            cut_off=(JobTimeoutException,),
            control=(RetryAskedError,),
            **options,
        )

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
            return self._deliver(self._delivery(args, kwargs), args, kwargs)

        @functools.wraps(function)
        async def wrapper_async(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            delivery = self._delivery(args, kwargs)
            try:
                return await self._deliver_async(delivery, args, kwargs)
            finally:
                if delivery.native is not None:  # RQ makes a loop for each job, and closes none
                    await once.aclose()

        self.wrapper: Callable[..., Any] = wrapper_async if is_async(function) else wrapper
        setattr(self.wrapper, PROTECTION, self)

    def _delivery(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Delivery:
        running = rq.get_current_job()
        if self._key is by_task_id and running is not None and not runs(running, self.wrapper):
            msg = (
                f"{self.guard.name} runs inside the job {running.func_name}, and is not what that "
                f"job runs: use functools.wraps in the decorators between, or a key that is made "
                f"of arguments"
            )
            raise ConfigurationError(msg)
        return Delivery(self.guard, delivered(self.wrapper), args, kwargs)

    def _has_no_id(self, delivery: Delivery) -> bool:
        """Whether it is a plain call, which only its job's id could protect."""
        return delivery.native is None and self._key is by_task_id

    def _deliver(self, delivery: Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the function's own
        """What the function returns, now or before; else the job is put back, or fails."""
        if self._has_no_id(delivery):
            return self._function(*args, **kwargs)

        def begin(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            delivery.begun = True
            free(self.once, delivery.tag, "started")
            return _no_retry(self._function(*args, **kwargs))

        try:
            outcome = self.guard.run(delivery.job, begin, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or means something to RQ
            ending = delivery.ended(error)
        else:
            ending = Ending(value=outcome.value, moment="succeeded")
            if not delivery.begun:
                free(self.once, delivery.tag, "started")
        if ending.moment is not None:
            free(self.once, delivery.tag, ending.moment)
        if ending.error is not None:
            raise ending.error
        pause(ending.pause)
        return ending.value

    async def _deliver_async(
        self, delivery: Delivery, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - the function's own
        """The same for a coroutine function, for which RQ makes an event loop."""
        if self._has_no_id(delivery):
            return await self._function(*args, **kwargs)

        async def begin(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            delivery.begun = True
            await free_async(self.once, delivery.tag, "started")
            return _no_retry(await self._function(*args, **kwargs))

        try:
            outcome = await self.guard.run_async(delivery.job, begin, args, kwargs)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or means something to RQ
            ending = delivery.ended(error)
        else:
            ending = Ending(value=outcome.value, moment="succeeded")
            if not delivery.begun:
                await free_async(self.once, delivery.tag, "started")
        if ending.moment is not None:
            await free_async(self.once, delivery.tag, ending.moment)
        if ending.error is not None:
            raise ending.error
        await pause_async(ending.pause)
        return ending.value


def _no_retry(value: Any) -> Any:  # noqa: ANN401 - the function's own
    """The value, which must not be a request to RQ: that is no result to keep."""
    if isinstance(value, rq.Retry):
        raise RetryAskedError(value)
    return value
