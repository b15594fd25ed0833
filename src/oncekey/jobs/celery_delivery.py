"""One delivery of a job of Celery: it is run, answered, put back into its queue, or it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.exceptions import Ignore, Reject  # type: ignore[import-untyped]  # celery has no types

from oncekey.errors import LeaseLostError, ResultNotKeptError
from oncekey.jobs.again import NOT_BEGUN, comes_again, seconds_until
from oncekey.jobs.celery_free import free_job
from oncekey.jobs.celery_request import awaited, put_back
from oncekey.jobs.guard import Guard
from oncekey.jobs.job import Job

_log = logging.getLogger("oncekey")


class Delivery:
    """A job, the task it is for, and the request that Celery made of its message."""

    def __init__(self, guard: Guard, job: Job, task: Any) -> None:  # noqa: ANN401 - of an untyped library
        """Nothing has begun yet."""
        self._guard = guard
        self._job = job
        self._task = task
        self._request = job.native
        self._begun = False

    def run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - the task's own
        """What the job returns, now or before."""
        try:
            return self._run(function, args, kwargs)
        except (*NOT_BEGUN, LeaseLostError) as error:
            again = comes_again(error, self._guard, self._job, begun=self._begun)
            if self._request.is_eager or not again:
                raise  # an eager job has no queue to go back to
            seconds = seconds_until(error, self._guard)
            raise put_back(self._task, self._request, seconds, error) from None
        except ResultNotKeptError as error:
            if self._begun or awaited(self._request):
                raise  # nothing must go on from a made-up None
            _log.warning("%s[%s] returns None: %s", self._job.name, self._job.id, error)
            return None

    def _run(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - the task's own
        """The same, and meanwhile others like it may be enqueued when its tag says so."""

        def begin(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the task's own
            self._begun = True
            free_job(self._guard.once, self._request, "started")
            return function(*args, **kwargs)

        try:
            outcome = self._guard.run(self._job, begin, args, kwargs)
        except (Ignore, Reject) as told:  # over, and no signal of Celery tells so
            if not getattr(told, "requeue", False):
                free_job(self._guard.once, self._request, "failed")
            raise
        if not self._begun:
            free_job(self._guard.once, self._request, "started")
        return outcome.value
