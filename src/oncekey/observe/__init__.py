"""Events: what happened to a call, as one value, and the observers that receive it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from oncekey.core.call import Call, Surface
from oncekey.errors import ConfigurationError
from oncekey.observe.logger import logger

Name = Literal[
    "new",  # granted: the code runs
    "taken_over",  # granted after an attempt whose end was uncertain
    "duplicate",  # answered from the record
    "waiting",  # the first call is in progress, and this one waits for its answer
    "busy",  # refused: in progress elsewhere
    "reused",  # refused: the key belongs to other arguments
    "held",  # the outcome of an attempt is unknown: refused, or refused from now on
    "refused",  # the store is down, and the call does not run
    "unprotected",  # runs all the same: the store is down, or there is a `reason`
    "completed",
    "failed",  # the error is kept
    "released",
    "lost",  # another attempt owns the record
    "not_kept",  # completed, but the result cannot be kept
    "not_recorded",  # done, but the store could not be told in time
    "never_recorded",  # done, and the process ends before the store could be told
    "renewal_failed",
    "resolved",  # by hand, with who and why in `detail`
    "forgotten",  # the same
    "purged",
    "breaker_opened",  # the store is out of reach or records nothing: claims are refused at once
    "breaker_closed",  # it works again
]


class Event(Struct, kw_only=True):
    """One thing that happened to one call.

    `reason` says why a request runs unprotected although the store was not asked: "no-owner" or
    "not-claimed". `seconds` is how long the check took, or the recording of the outcome. `size` is
    the number of bytes of result or error that were recorded. `reference` is that of the record, or
    of the call if the record has none.
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
    reason: str = ""
    trace: Any = None
    """The trace that an observer with a method `entering` has attached to the call."""


class Observer(Protocol):
    """A callable that receives events. It must not block; what it raises is only logged.

    An observer may have a method `wants(name)`: an event that no observer wants is not created.
    One observer may have a method `entering(call)`, which is called before the claim and returns
    the call, with a `trace` and another `reference` if it needs them.
    """

    def __call__(self, event: Event, /) -> None:
        """Handle the event."""
        ...


def _wants_all(_: Name) -> bool:
    return True


def _named(observer: object) -> str:
    return getattr(observer, "__name__", None) or repr(observer)


KINDS: Final[tuple[tuple[Name, ...], ...]] = (
    ("new", "taken_over"),
    ("duplicate", "busy"),
    ("held",),
    ("refused", "unprotected", "not_recorded", "renewal_failed"),
)
"""The events that the charts show: new calls, duplicates, held ones, and errors of the store."""


class Tally:
    """Count the calls of this process for the charts, without a lock and in fixed memory.

    Every call counts here, so it must cost next to nothing. A step of `itertools.count` is one
    step of the interpreter, which no other thread interrupts.
    """

    def __init__(self) -> None:
        """Start from zero."""
        self._counters = tuple(count() for _ in KINDS)
        self._taken = [0] * len(KINDS)
        self.steps: Final[dict[Name, Callable[[], int]]] = {
            name: counter.__next__
            for names, counter in zip(KINDS, self._counters, strict=True)
            for name in names
        }
        """What to call for an event of this name."""

    def take(self) -> tuple[int, int, int, int]:
        """Return how many there were of each kind since the last time. Call it on one thread."""
        counts = []
        for kind, counter in enumerate(self._counters):
            steps = next(counter)  # this is a step too
            counts.append(steps - self._taken[kind])
            self._taken[kind] = steps + 1
        new, duplicates, held, errors = counts
        return new, duplicates, held, errors


class Observers:
    """All observers of a `Once`."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        """Check the observers. Raise ConfigurationError if one is not callable, or if two trace."""
        self.tally: Final = Tally()
        self._steps = self.tally.steps
        self.everybody: Final[list[Observer]] = []
        """The observers, in the order in which they are told."""
        self._wants: list[Callable[[Name], bool]] = []
        self._entering: Callable[[Call], Call] | None = None
        if not isinstance(observers, Iterable):
            msg = f"observers must be a list of callables; write observers=[{_named(observers)}]"
            raise ConfigurationError(msg)
        for observer in observers:
            if not callable(observer):
                msg = f"an observer must be a callable that takes one event, not {observer!r}"
                raise ConfigurationError(msg)
            self.add(observer)
            entering = getattr(observer, "entering", None)
            if entering is not None and self._entering is not None:
                msg = "two observers trace calls; a call has room for the trace of one of them"
                raise ConfigurationError(msg)
            self._entering = self._entering or entering
        self.trace: Final = self._entering is not None
        """Whether one of the observers has a method `entering`."""

    def add(self, observer: Observer) -> None:
        """Add an observer."""
        self.everybody.append(observer)
        self._wants.append(getattr(observer, "wants", None) or _wants_all)

    def entering(self, call: Call) -> Call:
        """Return the call, with a trace if an observer traces."""
        if self._entering is None:
            return call
        try:
            return self._entering(call)
        except Exception:  # noqa: BLE001 - observers are the user's code
            logger.exception("an observer failed before a claim")
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
        """Create the event and pass it on, if an observer wants it. Never raise."""
        step = self._steps.get(name)
        if step is not None:
            step()
        if not self._wants:
            return
        try:
            for wants in self._wants:
                if wants(name):
                    break
            else:
                return  # most events are not wanted by any observer
        except Exception:  # noqa: BLE001 - observers are the user's code
            logger.exception("an observer failed on %s", name)
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
        """Pass the event to all observers. Log what they raise."""
        for observer in self.everybody:
            try:
                observer(event)
            except Exception:  # noqa: BLE001 - observers are the user's code
                logger.exception("an observer failed on %s", event.name)
