"""A job as key functions see it, whatever queue it came through, and where its key comes from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from oncekey.core.fingerprint import of_value
from oncekey.core.key import escape
from oncekey.errors import ConfigurationError, InvalidKeyError

# A job as key functions see it, whatever queue it came through.


_IDS: Final = ("id", "job_id", "task_id", "message_id")
_NAMES: Final = ("name", "task_name", "actor_name", "type", "func_name")
_PAYLOADS: Final = ("payload", "data", "body", "kwargs")


class Job(Struct, kw_only=True):
    """One delivery of a job.

    `arguments` are the task's by name; `payload` is what a queue without arguments hands over.
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
        """What a dotted path leads to in the arguments or the payload; KeyError for nothing."""
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
    """The job that a handler was called with: one of ours, a mapping, or an object of a queue."""
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


# Where the key of a job comes from. Any function of the job that returns a string will do.
#
# An empty string means: run it, unprotected.


KeyOfJob = Callable[[Any], str]


def by_task_id(job: Any) -> str:
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

    def key(job: Any) -> str:
        found = job if isinstance(job, Job) else job_of(job)
        if len(names) == 1:
            return _filled(found, names[0])
        return ":".join(_filled(found, name) for name in names)

    return key


def by_entity(name: str) -> KeyOfJob:
    """The task's name and the id of what it is about: `by_entity("note_id")`."""
    fields = by_fields(name)

    def key(job: Any) -> str:
        found = job_of(job)
        if not found.name:
            msg = "by_entity found no name on the job; choose by_fields or another key"
            raise InvalidKeyError(msg)
        return f"{escape(found.name)}:{fields(found)}"

    return key


def by_payload(job: Any) -> str:
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
