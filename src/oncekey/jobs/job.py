"""The `Job` that key functions receive from every queue, and the functions that make its key."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from oncekey.core.fingerprint import of_value
from oncekey.core.key import escape
from oncekey.errors import ConfigurationError, InvalidKeyError

# The job as key functions see it, the same for every queue.


_IDS: Final = ("id", "job_id", "task_id", "message_id")
_NAMES: Final = ("name", "task_name", "actor_name", "type", "func_name")
_PAYLOADS: Final = ("payload", "data", "body", "kwargs")


class Job(Struct, kw_only=True):
    """One delivery of a job.

    `arguments` are the arguments of the task by name. `payload` is the data of a job from a queue
    that has no arguments.
    """

    id: str = ""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    payload: Any = None
    attempt: int = 1
    redelivered: bool | None = None
    queue: str = ""
    native: Any = None

    def find(self, path: str) -> Any:
        """Return the value at a dotted path in the arguments or the payload.

        Raise KeyError if there is none.
        """
        first, *rest = path.split(".")
        value = self._root(first)
        for part in rest:
            value = _member(value, part)
        return value

    def _root(self, name: str) -> Any:
        if name in self.arguments:
            return self.arguments[name]
        for place in (self.payload, self.native):
            if place is not None:
                with contextlib.suppress(KeyError):
                    return _member(place, name)
        if len(self.arguments) == 1:  # tasks often take one message
            return _member(next(iter(self.arguments.values())), name)
        raise KeyError(name)


def job_of(raw: Any) -> Job:
    """Return the job for a handler's argument: a `Job`, a mapping or an object of a queue."""
    if isinstance(raw, Job):
        return raw
    known = {
        name: next((found for one in names if (found := _get(raw, one)) is not None), None)
        for name, names in (("id", _IDS), ("name", _NAMES), ("payload", _PAYLOADS))
    }
    payload = known["payload"] if known["payload"] is not None else raw
    return Job(id=_text(known["id"]), name=_text(known["name"]), payload=payload, native=raw)


def _get(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _member(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value[name]
    try:
        return getattr(value, name)
    except AttributeError:
        raise KeyError(name) from None


# Functions that make the key of a job. Any function of the job that returns a string can be used.
#
# An empty string means that the job runs unprotected.


KeyOfJob = Callable[[Any], str]


def by_task_id(job: Any) -> str:
    """Return the queue's own id, which is the same for every delivery and retry of a job.

    Raise InvalidKeyError if the job has no id.
    """
    found = job_of(job)
    if not found.id:
        msg = "by_task_id found no id on the job; choose by_fields or another key"
        raise InvalidKeyError(msg)
    return found.id


def by_fields(*names: str) -> KeyOfJob:
    """Return a key function that joins fields of the job.

    Example: `by_fields("order_id", "line.product_id")`. The function raises InvalidKeyError if a
    field is missing or empty.
    """
    if not names or not all(isinstance(name, str) and name for name in names):
        msg = "by_fields needs the names of fields, as in by_fields('order_id')"
        raise ConfigurationError(msg)

    def key(job: Any) -> str:
        found = job if isinstance(job, Job) else job_of(job)
        if len(names) == 1:
            return _filled(found, names[0])
        return ":".join(_filled(found, name) for name in names)

    return key


def by_entity(name: str) -> KeyOfJob:
    """Return a key function that joins the task's name and one field: `by_entity("note_id")`."""
    fields = by_fields(name)

    def key(job: Any) -> str:
        found = job_of(job)
        if not found.name:
            msg = "by_entity found no name on the job; choose by_fields or another key"
            raise InvalidKeyError(msg)
        return f"{escape(found.name)}:{fields(found)}"

    return key


def by_payload(job: Any) -> str:
    """Return a hash of all arguments or the payload, so that two equal jobs have the same key."""
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
