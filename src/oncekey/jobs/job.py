"""The `Job` that key functions receive from every queue, and the functions that make its key."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from oncekey.core.fingerprint import of_value
from oncekey.core.key import escape
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.functions import Arguments

# The job as key functions see it, the same for every queue.


_IDS: Final = ("id", "job_id", "task_id", "message_id")
_NAMES: Final = ("name", "task_name", "actor_name", "type", "func_name")
_PAYLOADS: Final = ("payload", "data", "body", "kwargs")
_CONTEXTS: Final = ("ctx", "context", "task")


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


class CallReader:
    """The parameters of a handler, to make the job of a call of it."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """Read the signature. `name` is the name of jobs that have none of their own."""
        self._arguments = Arguments(function)
        self._name = name
        kinds = {one.kind: one.name for one in inspect.signature(function).parameters.values()}
        self._rest = kinds.get(inspect.Parameter.VAR_POSITIONAL, "")
        self._more = kinds.get(inspect.Parameter.VAR_KEYWORD, "")

    def job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Job:
        """Return the job of a call with these arguments.

        A single argument may be the job itself, as a queue has it. Among several, one that is
        called `ctx`, `context` or `task` and has an id stands for the delivery.
        """
        given = self._arguments.without_receiver(self._arguments.bind(*args, **kwargs))
        rest, more = given.pop(self._rest, ()), given.pop(self._more, {})
        given.update(more)
        values = (*given.values(), *rest)
        if len(values) == 1:
            found = job_of(values[0])
            found = replace(found, arguments=found.arguments or given)
        else:
            context = next((one for one in _CONTEXTS if _id_of(given.get(one))), None)
            native = None if context is None else given.pop(context)
            given.update({self._rest: rest} if rest else {})
            found = Job(id=_id_of(native), arguments=given, native=native)
        return found if found.name else replace(found, name=self._name)


def _id_of(raw: Any) -> str:
    """Return the id of a delivery: its own, or that of its job."""
    for place, names in ((raw, _IDS), (_get(raw, "job"), (*_IDS, "key"))):
        for name in names:
            found = _get(place, name)
            if isinstance(found, str | int) and found != "":
                return str(found)
    return ""


def _get(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _member(value: Any, name: str) -> Any:
    if isinstance(value, bytes | bytearray | memoryview | str):
        value = _decoded(value)
    if isinstance(value, Mapping):
        return value[name]
    try:
        return getattr(value, name)
    except AttributeError:
        raise KeyError(name) from None


def _decoded(value: bytes | bytearray | memoryview | str) -> Any:
    """Return what the JSON says, or the value itself if it is none."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return value


# Functions that make the key of a job. Any function of the job that returns a string can be used.
#
# An empty string means that the job runs unprotected.


KeyOfJob = Callable[[Any], str]

_TAKES_JOB: Final = "oncekey_takes_job"


def takes_job(key: Callable[..., str]) -> bool:
    """Return whether the key function is one of these, which want a `Job`."""
    return getattr(key, _TAKES_JOB, False) is True


def _reads_job(key: KeyOfJob) -> KeyOfJob:
    setattr(key, _TAKES_JOB, True)
    return key


@_reads_job
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

    @_reads_job
    def key(job: Any) -> str:
        found = job if isinstance(job, Job) else job_of(job)
        if len(names) == 1:
            return _filled(found, names[0])
        return ":".join(_filled(found, name) for name in names)

    return key


def by_entity(name: str) -> KeyOfJob:
    """Return a key function that joins the task's name and one field: `by_entity("note_id")`."""
    fields = by_fields(name)

    @_reads_job
    def key(job: Any) -> str:
        found = job_of(job)
        if not found.name:
            msg = "by_entity found no name on the job; choose by_fields or another key"
            raise InvalidKeyError(msg)
        return f"{escape(found.name)}:{fields(found)}"

    return key


@_reads_job
def by_payload(job: Any) -> str:
    """Return a hash of all arguments or the payload, so that two equal jobs have the same key."""
    found = job_of(job)
    whole = found.arguments if found.payload is None else found.payload
    if isinstance(whole, bytes | bytearray | memoryview):
        whole = _decoded(whole)
    return of_value(whole).partition(":")[2]


def _filled(job: Job, name: str) -> str:
    value = None if "." in name else job.arguments.get(name)
    if value is None:
        try:
            value = job.find(name)
        except KeyError:
            msg = f"the job has no field {name!r} to make its key from"
            raise InvalidKeyError(msg) from None
    kind: Any = type(value)
    if kind.__repr__ is object.__repr__ and kind.__str__ is object.__str__:
        # Its text is its address, which another object may have next.
        msg = f"the field {name!r} of the job has no text of its own; name a field of it"
        raise InvalidKeyError(msg)
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    if value is None or not text:
        msg = f"the field {name!r} of the job is empty, so that it can be no key"
        raise InvalidKeyError(msg)
    return escape(text)
