"""What happened, as one value, told to whoever observes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from msgspec import Struct

from oncekey.call import Call
from oncekey.errors import ConfigurationError

Name = Literal[
    "new",  # granted: the code runs
    "taken_over",  # granted after an attempt whose end was uncertain
    "duplicate",  # answered from the record
    "busy",  # refused: in progress elsewhere
    "reused",  # refused: the key belongs to other arguments
    "held",  # refused, or from now on: nobody knows how an attempt ended
    "refused",  # the store is down, and the call does not run
    "unprotected",  # the store is down, and the call runs all the same
    "completed",
    "failed",  # the error is kept
    "released",
    "lost",  # another attempt owns the record
    "not_kept",  # completed, but the result cannot be kept
    "not_recorded",  # done, but the store could not be told in time
    "renewal_failed",
    "purged",
]


class Event(Struct, kw_only=True):
    """One thing that happened to one call. `seconds` is how long the check or the run took."""

    name: Name
    scope: str | None = None
    key: str = ""
    label: str = ""
    attempt: int = 0
    seconds: float = 0.0
    detail: str = ""
    count: int = 1


class Observer(Protocol):
    """Anything that wants to know. It must not block, and what it raises is only logged.

    An observer may have a method `wants(name)`: events that it does not want are not even made.
    """

    def __call__(self, event: Event, /) -> None:
        """Take note of the event."""
        ...


def _everything(_: Name) -> bool:
    return True


def _wanted(wants: Callable[[Name], bool], name: Name) -> bool:
    try:
        return wants(name)
    except Exception:
        logging.getLogger("oncekey").exception("an observer failed on %s", name)
        return True


class Observers:
    """Everybody who wants to know."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        """Each observer is a callable that takes one event."""
        self._all: list[tuple[Observer, Callable[[Name], bool]]] = []
        for observer in observers:
            if not callable(observer):
                msg = f"an observer must be a callable that takes one event, not {observer!r}"
                raise ConfigurationError(msg)
            self._all.append((observer, getattr(observer, "wants", _everything)))

    def tell(
        self, name: Name, call: Call, attempt: int = 0, seconds: float = 0.0, detail: str = ""
    ) -> None:
        """Everybody has heard of it; nobody can stop the call by failing."""
        for _, wants in self._all:
            if _wanted(wants, name):
                break
        else:
            return  # most events are of no interest to anybody, and are not even made
        self.hand(
            Event(
                name=name,
                scope=call.scope,
                key=call.key,
                label=call.label,
                attempt=attempt,
                seconds=seconds,
                detail=detail,
            )
        )

    def hand(self, event: Event) -> None:
        """Everybody has got this event."""
        for observer, _ in self._all:
            try:
                observer(event)
            except Exception:
                logging.getLogger("oncekey").exception("an observer failed on %s", event.name)
