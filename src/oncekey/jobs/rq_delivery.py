"""What RQ tells about the job that runs, and what becomes of a job that cannot run now."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import rq
from msgspec import Struct
from rq.scheduler import RQScheduler

from oncekey.errors import ResultNotKeptError
from oncekey.jobs.again import comes_again, seconds_until
from oncekey.jobs.guard import Guard
from oncekey.jobs.job import Job
from oncekey.jobs.tag import HEADER, Moment, Tag, read_tag

if TYPE_CHECKING:
    from rq.job import Job as NativeJob

_log = logging.getLogger("oncekey")

_ENTERED: Final = "oncekey_entered"
"""On a job: its function has begun, so that a call from inside it is no delivery of its own."""

_IN_PLACE: Final = "sync"
"""What RQ writes down as the worker of a job that runs where it is enqueued."""


class RetryAskedError(Exception):
    """The function returned a Retry: this carries it past the record, which must not keep it."""

    def __init__(self, retry: rq.Retry) -> None:
        super().__init__("the job asks to be retried")
        self.retry = retry


class Ending(Struct, kw_only=True):
    """How a delivery ends: what RQ gets, after which pause, and what that means for its tag."""

    value: Any = None
    error: BaseException | None = None
    moment: Moment | None = None
    pause: float = 0


class Delivery:
    """A call of a function: the job it is for, if any, and whether the function has begun."""

    def __init__(
        self, guard: Guard, native: NativeJob | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """A plain call has no job, and no id."""
        self._guard = guard
        self.native = native
        self.begun = False
        self.tag: Tag | None = None
        self.job = Job(name=guard.name, arguments=guard.arguments(args, kwargs))
        if native is not None:
            self.tag = read_tag(native.meta.get(HEADER))
            self.job.id = native.id
            self.job.attempt = (native.number_of_retries or 0) + 1
            self.job.queue = native.origin
            self.job.native = native

    def ended(self, error: BaseException) -> Ending:
        """What the error comes to: a retry that was asked for, a later try, or a failure."""
        job = self.native
        if isinstance(error, RetryAskedError):
            last = job is not None and (job.number_of_retries or 0) >= error.retry.max
            return Ending(value=error.retry, moment="failed" if last else None)
        if job is None:  # nobody could put a plain call back
            return Ending(error=error)
        if job.worker_name != _IN_PLACE and comes_again(
            error, self._guard, self.job, begun=self.begun
        ):
            return self._put_back(job, seconds_until(error, self._guard), error)
        if isinstance(error, ResultNotKeptError) and not self.begun and not _awaited(job):
            _log.warning("%s[%s] returns None: %s", self.job.name, job.id, error)
            return Ending(moment="succeeded")
        return Ending(error=error, moment=None if job.should_retry else "failed")

    def _put_back(self, job: NativeJob, seconds: float, why: BaseException) -> Ending:
        """The job comes again, after a pause here or a delay there.

        Only a worker that runs the scheduler knows delays: without one the job would never come.
        """
        _log.debug("%s[%s] comes back in %.3g s: %s", self.job.name, job.id, seconds, why)
        # RQ counts the retries that functions ask for, and this is none.
        job.number_of_retries = (job.number_of_retries or 0) - 1
        if job.connection.exists(RQScheduler.get_locking_key(job.origin)):
            return Ending(value=rq.Retry(sys.maxsize, interval=max(1, math.ceil(seconds))))
        limit = job.timeout if isinstance(job.timeout, int) and job.timeout > 0 else math.inf
        return Ending(value=rq.Retry(sys.maxsize), pause=min(seconds, limit / 2))


def delivered(wrapper: Callable[..., Any]) -> NativeJob | None:
    """The job whose function is called just now; None for a call in somebody's own code."""
    job = rq.get_current_job()
    if job is None or hasattr(job, _ENTERED) or not runs(job, wrapper):
        return None
    setattr(job, _ENTERED, True)
    return job


def runs(job: NativeJob, wrapper: Callable[..., Any]) -> bool:
    """Whether this is what the job runs, below the user's own decorators."""
    return any(one is wrapper for one in _layers(job.func))


def _layers(function: Any) -> Iterator[Any]:  # noqa: ANN401 - any function or method
    while function is not None:
        function = getattr(function, "__func__", function)
        yield function
        function = getattr(function, "__wrapped__", None)


def _awaited(job: NativeJob) -> bool:
    """Whether something goes on from the value that the job returns: it must be no made-up None."""
    return bool(job.success_callback or job.dependent_ids)
