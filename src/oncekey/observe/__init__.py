"""What happened, as one value, told to whoever observes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from oncekey.core.call import Call, Surface
from oncekey.errors import ConfigurationError

Name = Literal[
    "new",  # granted: the code runs
    "taken_over",  # granted after an attempt whose end was uncertain
    "duplicate",  # answered from the record
    "waiting",  # the first call is in progress, and this one waits for its answer
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
    "breaker_opened",  # the store is out of reach: claims are refused at once from now on
    "breaker_closed",  # it answers again
]


class Event(Struct, kw_only=True):
    """One thing that happened to one call.

    `seconds` is how long the check took, or the recording of an end. `size` is how many bytes of
    result or error were recorded. `reference` is the record's, or the call's where it has none.
    """

    name: Name
    scope: str | None = None
    key: str = ""
    label: str = ""
    surface: Surface = "function"
    attempt: int = 0
    seconds: float = 0.0
    detail: str = ""
    count: int = 1
    size: int = 0
    reference: str = ""
    trace: Any = None
    """What an observer with a method `entering` hung on the call."""


class Observer(Protocol):
    """Anything that wants to know. It must not block, and what it raises is only logged.

    An observer may have a method `wants(name)`: events that it does not want are not even made.
    One observer may have a method `entering(call)`, which is called before the claim and gives
    back the call, with a `trace` and another `reference` where it wants them.
    """

    def __call__(self, event: Event, /) -> None:
        """Take note of the event."""
        ...


class Observers:
    """Everybody who wants to know."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        """Each observer is a callable that takes one event."""
        self._all: list[tuple[Observer, Callable[[Name], bool] | None]] = []
        self._entering: Callable[[Call], Call] | None = None
        for observer in observers:
            if not callable(observer):
                msg = f"an observer must be a callable that takes one event, not {observer!r}"
                raise ConfigurationError(msg)
            self._all.append((observer, getattr(observer, "wants", None)))
            entering = getattr(observer, "entering", None)
            if entering is not None and self._entering is not None:
                msg = "two observers trace calls; a call has room for the trace of one of them"
                raise ConfigurationError(msg)
            self._entering = self._entering or entering
        self.trace: Final = self._entering is not None
        """Whether one of them wants to hear of a call before it is made."""

    @property
    def everybody(self) -> list[Observer]:
        """All of them, for a `Once` that tells the same ones."""
        return [observer for observer, _ in self._all]

    def add(self, observer: Observer) -> None:
        """From now on this one hears as well."""
        self._all.append((observer, getattr(observer, "wants", None)))

    def entering(self, call: Call) -> Call:
        """The call as it is made: with a trace, where somebody traces."""
        if self._entering is None:
            return call
        try:
            return self._entering(call)
        except Exception:
            logging.getLogger("oncekey").exception("an observer failed before a claim")
            return call

    def tell(
        self,
        name: Name,
        call: Call,
        attempt: int = 0,
        seconds: float = 0.0,
        detail: str = "",
        *,
        size: int = 0,
        reference: str = "",
    ) -> None:
        """Everybody has heard of it; nobody can stop the call by failing."""
        try:
            for _, wants in self._all:
                if wants is None or wants(name):
                    break
            else:
                return  # most events are of no interest to anybody, and are not even made
        except Exception:
            logging.getLogger("oncekey").exception("an observer failed on %s", name)
        self.hand(
            Event(
                name=name,
                scope=call.scope,
                key=call.key,
                label=call.label,
                surface=call.surface,
                attempt=attempt,
                seconds=seconds,
                detail=detail,
                size=size,
                reference=reference or call.reference,
                trace=call.trace,
            )
        )

    def hand(self, event: Event) -> None:
        """Everybody has got this event."""
        for observer, _ in self._all:
            try:
                observer(event)
            except Exception:
                logging.getLogger("oncekey").exception("an observer failed on %s", event.name)
