"""Where the key of a job comes from. Any function of the job that returns a string will do.

An empty string means: run it, unprotected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncekey.core.fingerprint import of_value
from oncekey.core.key import escape
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.jobs.job import Job, job_of

KeyOfJob = Callable[[Any], str]


def by_task_id(job: Any) -> str:  # noqa: ANN401 - a job of any queue
    """The queue's own id: the same for every delivery and retry of one enqueued job."""
    found = job_of(job)
    if not found.id:
        msg = "by_task_id found no id on the job; choose by_fields or another key"
        raise InvalidKeyError(msg)
    return found.id


def by_fields(*names: str) -> KeyOfJob:
    """Some fields of the job, such as `by_fields("order_id", "line.product_id")`."""
    if not names or not all(isinstance(name, str) and name for name in names):
        msg = "by_fields needs the names of fields, as in by_fields('order_id')"
        raise ConfigurationError(msg)

    def key(job: Any) -> str:  # noqa: ANN401 - a job of any queue
        found = job if isinstance(job, Job) else job_of(job)
        if len(names) == 1:
            return _filled(found, names[0])
        return ":".join(_filled(found, name) for name in names)

    return key


def by_entity(name: str) -> KeyOfJob:
    """The task's name and the id of what it is about: `by_entity("note_id")`."""
    fields = by_fields(name)

    def key(job: Any) -> str:  # noqa: ANN401 - a job of any queue
        found = job_of(job)
        if not found.name:
            msg = "by_entity found no name on the job; choose by_fields or another key"
            raise InvalidKeyError(msg)
        return f"{escape(found.name)}:{fields(found)}"

    return key


def by_payload(job: Any) -> str:  # noqa: ANN401 - a job of any queue
    """A hash of everything the job is called with: two equal jobs are one."""
    found = job_of(job)
    return of_value(found.arguments or found.payload).partition(":")[2]


def _filled(job: Job, name: str) -> str:
    value = None if "." in name else job.arguments.get(name)
    if value is None:
        try:
            value = job.find(name)
        except KeyError:
            msg = f"the job has no field {name!r} to make its key from"
            raise InvalidKeyError(msg) from None
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if value is None or not text:
        msg = f"the field {name!r} of the job is empty, so that it can be no key"
        raise InvalidKeyError(msg)
    return escape(text)
