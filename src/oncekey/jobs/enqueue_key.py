"""The key under which a job is enqueued."""

from __future__ import annotations

from oncekey.errors import ConfigurationError
from oncekey.jobs.guard import KeyFunction
from oncekey.jobs.job import Job
from oncekey.jobs.keys import by_task_id


def enqueue_key(key: KeyFunction | str, job: Job) -> str:
    """What the function makes of the job, or the key itself."""
    if isinstance(key, str):
        return key
    if not callable(key) or isinstance(key, type):
        msg = f"enqueue_once needs a key, or a function that makes it of the job, not {key!r}"
        raise ConfigurationError(msg)
    if key is by_task_id:
        msg = "enqueue_once needs a key made of arguments: every job has an id of its own"
        raise ConfigurationError(msg)
    return key(job)
