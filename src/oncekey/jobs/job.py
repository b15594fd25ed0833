"""A job as key functions see it, whatever queue it came through."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

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

    def find(self, path: str) -> Any:  # noqa: ANN401 - whatever the job carries
        """What a dotted path leads to in the arguments or the payload; KeyError for nothing."""
        first, *rest = path.split(".")
        value = self._root(first)
        for part in rest:
            value = _member(value, part)
        return value

    def _root(self, name: str) -> Any:  # noqa: ANN401 - as above
        if name in self.arguments:
            return self.arguments[name]
        for place in (self.payload, self.native):
            if place is not None:
                with contextlib.suppress(KeyError):
                    return _member(place, name)
        if len(self.arguments) == 1:  # tasks often take one message
            return _member(next(iter(self.arguments.values())), name)
        raise KeyError(name)


def job_of(raw: Any) -> Job:  # noqa: ANN401 - whatever a queue hands over
    """The job that a handler was called with: one of ours, a mapping, or an object of a queue."""
    if isinstance(raw, Job):
        return raw
    known = {
        name: next((found for one in names if (found := _get(raw, one)) is not None), None)
        for name, names in (("id", _IDS), ("name", _NAMES), ("payload", _PAYLOADS))
    }
    payload = known["payload"] if known["payload"] is not None else raw
    return Job(id=_text(known["id"]), name=_text(known["name"]), payload=payload, native=raw)


def _get(raw: Any, name: str) -> Any:  # noqa: ANN401 - as above
    return raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _member(value: Any, name: str) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, Mapping):
        return value[name]
    try:
        return getattr(value, name)
    except AttributeError:
        raise KeyError(name) from None
