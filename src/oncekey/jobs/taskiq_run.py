"""One delivery of a job of Taskiq, from the moment a worker has it until it is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from taskiq import NoResultError
from taskiq.exceptions import TaskRejectedError

from oncekey.compat import pause, pause_async
from oncekey.errors import LeaseLostError, ResultNotKeptError
from oncekey.jobs.again import NOT_BEGUN, comes_again
from oncekey.jobs.guard import Guard
from oncekey.jobs.job import Job
from oncekey.jobs.tag import free, free_async
from oncekey.jobs.taskiq_delivery import Delivery

CONTROL: Final = (NoResultError, TaskRejectedError)
"""How a task tells Taskiq what to do."""


class _LaterError(Exception):
    """The job cannot be done now, and not because of anything that it does."""

    def __init__(self, why: Exception) -> None:
        super().__init__(str(why))
        self.why = why


class Run:
    """A delivery, and the function that it is for."""

    def __init__(
        self, guard: Guard, function: Callable[..., Any], delivery: Delivery, job: Job
    ) -> None:
        """Nothing has happened yet."""
        self._guard = guard
        self._function = function
        self._delivery = delivery
        self._job = job
        self._begun = False

    def value(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the task's own
        """What the job returns, now or before; else it is put back, or fails."""
        while True:
            try:
                return self._tried(args, kwargs)
            except _LaterError as later:
                pause(self._pause(later.why))
                self._delivery.put_back(later.why)

    async def value_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - the task's own
        """What the job returns, now or before; else it is put back, or fails."""
        while True:
            try:
                return await self._tried_async(args, kwargs)
            except _LaterError as later:
                await pause_async(self._pause(later.why))
                await self._delivery.put_back_async(later.why)

    def _tried(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        self._begun = False
        try:
            return self._run(args, kwargs)
        except NOT_BEGUN as error:
            if self._begun:  # of a call inside it
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

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        """The value; and others like it may be enqueued when its tag says so."""
        try:
            outcome = self._guard.run(self._job, self._begin, args, kwargs)
        except NoResultError:  # over, and no result tells the middleware
            if not self._delivery.put_back_by_task:
                free(self._guard.once, self._delivery.tag, "failed")
            raise
        if not self._begun:
            free(self._guard.once, self._delivery.tag, "started")
        return outcome.value

    async def _tried_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        self._begun = False
        try:
            return await self._run_async(args, kwargs)
        except NOT_BEGUN as error:
            if self._begun:  # of a call inside it
                raise
            raise _LaterError(error) from None
        except LeaseLostError as error:
            # Where the record is gone there is no other attempt to hear from.
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

    async def _run_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - as above
        """The value; and others like it may be enqueued when its tag says so."""
        try:
            outcome = await self._guard.run_async(self._job, self._begin_async, args, kwargs)
        except NoResultError:  # over, and no result tells the middleware
            if not self._delivery.put_back_by_task:
                await free_async(self._guard.once, self._delivery.tag, "failed")
            raise
        if not self._begun:
            await free_async(self._guard.once, self._delivery.tag, "started")
        return outcome.value

    def _begin(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        self._begun = True
        free(self._guard.once, self._delivery.tag, "started")
        return self._function(*args, **kwargs)

    async def _begin_async(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
        self._begun = True
        await free_async(self._guard.once, self._delivery.tag, "started")
        return await self._function(*args, **kwargs)

    def _pause(self, why: Exception) -> float:
        return self._delivery.pause(getattr(why, "retry_after", self._guard.retry_after))
