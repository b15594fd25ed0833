"""Protection of functions to which the queue hands the delivery as an argument."""

from __future__ import annotations

import functools
import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar, Unpack, cast

from msgspec.structs import replace

from oncekey.compat import pause, pause_async
from oncekey.errors import ConfigurationError, ResultNotKeptError
from oncekey.functions import UNSET, checked_function, is_async, scope_of
from oncekey.jobs.enqueue import HEADER, Tag, free_tagged, free_tagged_async, read_tag
from oncekey.jobs.job import Job, by_task_id
from oncekey.jobs.protect import JobGuard, KeyFunction, comes_again, seconds_until
from oncekey.once import Once, Reconciler
from oncekey.policy import Errors, Policy, PolicyFields

_log = logging.getLogger("oncekey")

F = TypeVar("F", bound=Callable[..., Any])

SHORTEST: Final = 0.05
"""Seconds that a job waits at least before it is tried again in place."""

PROTECTION: Final = "oncekey"
"""The attribute of a function that holds its protection."""


class PutBackError(Exception):
    """Raised to put a job back that could not begin here. It is no failure of the function."""

    def __init__(self, seconds: float) -> None:
        """Take the number of seconds after which the job should come back."""
        super().__init__("another attempt is at it, or the store cannot be asked")
        self.seconds = seconds


class _ArgumentDelivery:
    """One call of a function: what the queue has handed over, if it was the queue that called."""

    def __init__(self, native: Any, job: Job, tag: Tag | None) -> None:
        self.native = native
        self.job = job
        self.tag = tag
        self.begun = False


class ArgumentProtection(ABC):
    """A function, and how its jobs are protected. Each queue has a subclass."""

    control: Errors = ()
    """Exceptions by which a function tells the queue what to do. They are not failures."""
    cut_off: Errors = ()
    """Errors of the queue that interrupt a function at any point."""
    context = ""
    """What to write so that the queue hands over the delivery, for an error message."""

    def __init__(
        self,
        once: Once,
        function: Callable[..., Any],
        key: KeyFunction,
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        """Check everything that can be checked without a job."""
        self.once = once
        self.key = key
        self._function = checked_function(function)
        self.guard = JobGuard(
            once,
            function,
            name=name or scope_of(function),
            key=key,
            cut_off=self.cut_off,
            control=self.control,
            **options,
        )

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return self._deliver(args, kwargs)

        @functools.wraps(function)
        async def wrapper_async(*args: Any, **kwargs: Any) -> Any:
            return await self._deliver_async(args, kwargs)

        self.wrapper: Callable[..., Any] = wrapper_async if is_async(function) else wrapper
        setattr(self.wrapper, PROTECTION, self)

    @classmethod
    def decorator(
        cls,
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
        """Decorate a function that the queue runs: run jobs with the same key once.

        `key` is a function of the `Job`. Keys are kept under `name`, by default the module and name
        of the function, unless `scope` is given.
        """
        said = {
            "scope": scope,
            "fingerprint": fingerprint,
            "reconcile": reconcile,
            "policy": policy,
            **fields,
        }

        def decorate(function: F) -> F:
            return cast("F", cls(once, function, key, name, said).wrapper)

        return decorate

    # What each queue does in its own way

    @abstractmethod
    def native(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the queue has handed over, or None for a plain call.

        What the function itself does not want is taken out of `kwargs`.
        """

    @abstractmethod
    def job(self, native: Any, arguments: dict[str, Any]) -> Job:
        """Return the job as key functions see it, without the delivery among its arguments."""

    def again(self, native: Any, seconds: float) -> BaseException | None:  # noqa: ARG002 - some queues look at it
        """Return the exception that makes the job come back, or None to wait here."""
        return None

    async def again_async(self, native: Any, seconds: float) -> BaseException | None:
        """Do the same on an event loop."""
        return self.again(native, seconds)

    def longest_pause(self, native: Any) -> float:  # noqa: ARG002 - some queues look at it
        """Return for how many seconds a job may wait here."""
        return 60.0

    def is_over(self, native: Any, error: BaseException) -> bool:  # noqa: ARG002 - as above
        """Return whether the queue does not try a job that failed again."""
        return not isinstance(error, self.control)

    # What is the same in all of them

    def enqueued_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        """Return the job of a call that is to be enqueued. It has no id yet."""
        return Job(name=self.guard.name, arguments=self.guard.arguments(args, kwargs))

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _ArgumentDelivery:
        tag = read_tag(kwargs.pop(HEADER, None))
        native = self.native(args, kwargs)
        arguments = self.guard.arguments(args, kwargs)
        if native is None:
            return _ArgumentDelivery(None, Job(name=self.guard.name, arguments=arguments), tag)
        return _ArgumentDelivery(native, self.job(native, arguments), tag)

    def _has_no_id(self, delivery: _ArgumentDelivery) -> bool:
        """Return whether this is a plain call that has no id to be protected by."""
        if delivery.native is not None or self.key is not by_task_id:
            return False
        if delivery.tag is None:
            return True
        msg = f"{self.guard.name} does not get the id of its job: write {self.context}"
        raise ConfigurationError(msg)

    def _comes_again(self, delivery: _ArgumentDelivery, error: BaseException) -> bool:
        return delivery.native is not None and comes_again(
            error, self.guard, delivery.job, begun=delivery.begun
        )

    def _unkept(self, delivery: _ArgumentDelivery, error: BaseException) -> bool:
        """Return whether a duplicate returns None, since the first result was not kept."""
        found = isinstance(error, ResultNotKeptError) and not delivery.begun
        if found and delivery.native is not None:
            _log.warning("%s[%s] returns None: %s", delivery.job.name, delivery.job.id, error)
        return found and delivery.native is not None

    def _seconds(self, delivery: _ArgumentDelivery, error: BaseException) -> float:
        found = min(seconds_until(error, self.guard), self.longest_pause(delivery.native))
        name, job_id = delivery.job.name, delivery.job.id
        _log.debug("%s[%s] comes back in %.3g s: %s", name, job_id, found, error)
        return found

    def _deliver(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function, or return its first result. Put the job back if it cannot begin."""
        delivery = self._begin(args, kwargs)
        if self._has_no_id(delivery):
            return self._function(*args, **kwargs)

        def begin(*args: Any, **kwargs: Any) -> Any:
            delivery.begun = True
            free_tagged(self.once, delivery.tag, "started")
            return self._function(*args, **kwargs)

        while True:
            delivery.begun = False
            value = None
            try:
                value = self.guard.run(delivery.job, begin, args, kwargs).value
            except BaseException as error:
                if self._comes_again(delivery, error):
                    seconds = self._seconds(delivery, error)
                    back = self.again(delivery.native, seconds)
                    if back is not None:
                        raise back from None
                    pause(max(seconds, SHORTEST))
                    continue
                if not self._unkept(delivery, error):
                    if delivery.native is not None and self.is_over(delivery.native, error):
                        free_tagged(self.once, delivery.tag, "failed")
                    raise
            if not delivery.begun:
                free_tagged(self.once, delivery.tag, "started")
            free_tagged(self.once, delivery.tag, "succeeded")
            return value

    async def _deliver_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the same for a coroutine function."""
        delivery = self._begin(args, kwargs)
        if self._has_no_id(delivery):
            return await self._function(*args, **kwargs)

        async def begin(*args: Any, **kwargs: Any) -> Any:
            delivery.begun = True
            await free_tagged_async(self.once, delivery.tag, "started")
            return await self._function(*args, **kwargs)

        while True:
            delivery.begun = False
            value = None
            try:
                value = (await self.guard.run_async(delivery.job, begin, args, kwargs)).value
            except BaseException as error:
                if self._comes_again(delivery, error):
                    seconds = self._seconds(delivery, error)
                    back = await self.again_async(delivery.native, seconds)
                    if back is not None:
                        raise back from None
                    await pause_async(max(seconds, SHORTEST))
                    continue
                if not self._unkept(delivery, error):
                    if delivery.native is not None and self.is_over(delivery.native, error):
                        await free_tagged_async(self.once, delivery.tag, "failed")
                    raise
            if not delivery.begun:
                await free_tagged_async(self.once, delivery.tag, "started")
            await free_tagged_async(self.once, delivery.tag, "succeeded")
            return value


class ContextProtection(ArgumentProtection):
    """A function to which the queue hands a context as its first argument."""

    def enqueued_job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        """Return the job of a call that is to be enqueued, to which the queue adds the context."""
        found = super().enqueued_job((None, *args), kwargs)
        return replace(found, arguments=without_context(found.arguments))


def without_context(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, without the first."""
    return dict(itertools.islice(arguments.items(), 1, None))


def protection_of(function: object) -> ArgumentProtection:
    """Return the protection of a function. Raise ConfigurationError if it has none."""
    found = getattr(function, PROTECTION, None)
    if isinstance(found, ArgumentProtection):
        return found
    msg = (
        f"{function!r} is not protected, and nobody would tell when its job has ended: put "
        f"@once_task on it first"
    )
    raise ConfigurationError(msg)
