"""Which errors send a job back into its queue, without counting as one of its retries."""

from __future__ import annotations

from typing import Final

from oncekey.errors import InProgressError, LeaseLostError, StoreError
from oncekey.jobs.guard import Guard
from oncekey.jobs.job import Job

NOT_BEGUN: Final = (InProgressError, StoreError)
"""The job could not be claimed. From a call inside the job they are the job's own failure."""


def comes_again(error: BaseException, guard: Guard, job: Job, *, begun: bool) -> bool:
    """Whether the job is better off in its queue, until another attempt is done with it."""
    if isinstance(error, NOT_BEGUN):
        return not begun
    if isinstance(error, LeaseLostError) and guard.owns(error, job):
        # Taken over. Where the record is gone there is no other attempt, only this one's effect.
        return guard.once.get(error.key, scope=error.scope) is not None
    return False


def seconds_until(error: BaseException, guard: Guard) -> float:
    """When the job should come again."""
    return float(getattr(error, "retry_after", guard.retry_after))
