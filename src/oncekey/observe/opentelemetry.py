"""Create OpenTelemetry spans for calls. Needs the extra `oncekey[opentelemetry]`.

A call that runs is one span, `oncekey.run`, with the spans `oncekey.claim` and `oncekey.settle`
inside, and the spans of the code that runs. A duplicate is a span `oncekey.replay`, linked to the
`oncekey.run` that produced its answer, in whatever process and at whatever time that was. A refused
call is a span `oncekey.refuse`.
"""

from __future__ import annotations

import re
from contextvars import Token
from time import time_ns
from typing import Final, NamedTuple

from msgspec.structs import replace

from oncekey.core.call import Call
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.observe import Event, Name
from oncekey.observe.log import LINES
from oncekey.observe.redaction import Redact, Redaction

with needing("opentelemetry", __name__):
    from opentelemetry import context, trace
    from opentelemetry.trace import Span, SpanContext, Status, StatusCode, TraceFlags

# A record keeps the position of its run's span at the end of its reference, in the form of the
# `traceparent` of W3C Trace Context, after a space if the reference contains more.
_FORM: Final = re.compile(r"(?:^| )00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


class SpanPlace(NamedTuple):
    """The position of a span: ids and flags."""

    trace: int
    span: int
    flags: int


def with_place(reference: str, place: SpanPlace) -> str:
    """Return the reference with the position of the run's span added."""
    written = f"00-{place.trace:032x}-{place.span:016x}-{place.flags:02x}"
    return f"{reference} {written}" if reference else written


def place_in(reference: str) -> SpanPlace | None:
    """Return the position of the run's span from a reference, or None if it has none."""
    found = _FORM.search(reference)
    if found is None:
        return None
    place = SpanPlace(*(int(part, 16) for part in found.groups()))
    return place if place.trace and place.span else None


_GRANTED: Final[frozenset[Name]] = frozenset({"new", "taken_over", "unprotected"})
_REFUSED: Final[frozenset[Name]] = frozenset({"busy", "reused", "held", "refused"})
_SETTLED: Final[frozenset[Name]] = frozenset({"completed", "failed", "released"})
_ENDED: Final[frozenset[Name]] = _SETTLED.union(("held", "lost", "not_recorded"))
_WANTED: Final = _GRANTED | _REFUSED | _ENDED | {"duplicate"}
_SECOND: Final = 1_000_000_000


class TracedRun:
    """The span of a call, which is attached to the call as its `trace`."""

    __slots__ = ("_attached", "granted", "inside", "over", "span", "unprotected")

    def __init__(self, span: Span, inside: context.Context) -> None:
        """Take a span that has begun. `inside` is the context in which it is the current span."""
        self.span = span
        self.inside = inside
        self.granted = self.unprotected = self.over = False
        self._attached: Token[context.Context] | None = None

    def __del__(self) -> None:
        """End the span of a call that was cut off before it reported an end."""
        self.end()

    def end(self) -> None:
        """End the span, once."""
        if not self.over:
            self.over = True
            self.span.end()

    def attach(self) -> None:
        """Make the span the current one."""
        self._attached = context.attach(self.inside)

    def detach(self) -> None:
        """Restore the previous span. Call this in the context in which it was attached."""
        attached, self._attached = self._attached, None
        if attached is not None:
            context.detach(attached)
        if self.unprotected:  # its outcome is recorded later, when the store is back: do not wait
            self.end()


class OpenTelemetryObserver:
    """Create spans for calls. Keys are redacted as in the log of `LogObserver`."""

    def __init__(
        self, tracer_provider: trace.TracerProvider | None = None, *, redact: Redact = None
    ) -> None:
        """Use the global provider if none is given, as it is at the first call."""
        if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
            msg = f"tracer_provider must be a TracerProvider, but it is {tracer_provider!r}"
            raise ConfigurationError(msg)
        self._tracer = trace.get_tracer("oncekey", tracer_provider=tracer_provider)
        self._redaction = Redaction(redact)

    def entering(self, call: Call) -> Call:
        """Return the call with a new span, whose position the record will keep."""
        span = self._tracer.start_span("oncekey.run")
        own = span.get_span_context()
        if not own.is_valid:  # spans are not collected
            return call
        run = TracedRun(span, trace.set_span_in_context(span))
        if call.surface == "message":  # its reference is the id of the message, and must not change
            return replace(call, trace=run)
        place = SpanPlace(own.trace_id, own.span_id, own.trace_flags)
        return replace(call, trace=run, reference=with_place(call.reference, place))

    def wants(self, name: Name) -> bool:
        """Return whether spans are made from events of this name."""
        return name in _WANTED

    def __call__(self, event: Event, /) -> None:
        """Add the event to the span of its call, and create spans for what has just been done."""
        run = event.trace
        if not isinstance(run, TracedRun) or run.over:
            return
        if run.granted:
            self._ended(run, event)
        elif event.name in _SETTLED:  # what `reconcile` found, before the call gets its answer
            self._part("oncekey.settle", run, event)
        else:
            self._part("oncekey.claim", run, event)
            self._describe(run.span, event)
            self._answered(run, event)

    def _answered(self, run: TracedRun, event: Event) -> None:
        """Mark the call as running, or end its span."""
        if event.name in _GRANTED:
            run.granted, run.unprotected = True, event.name == "unprotected"
            return
        if event.name == "duplicate":
            run.span.update_name("oncekey.replay")
            original = _span_of(event.reference)
            if original is not None:
                run.span.add_link(original)
        else:
            run.span.update_name("oncekey.refuse")
            run.span.set_status(Status(StatusCode.ERROR, LINES[event.name][1]))
        run.end()

    def _ended(self, run: TracedRun, event: Event) -> None:
        """End the span of a call that ran, or that another attempt answered for."""
        run.span.set_attribute("oncekey.ended", event.name)
        if event.name in _SETTLED or event.name == "held":
            self._part("oncekey.settle", run, event)
        if event.name != "completed":
            run.span.set_status(Status(StatusCode.ERROR, LINES[event.name][1]))
        run.end()

    def _part(self, name: str, run: TracedRun, event: Event) -> None:
        """Create a span inside of the call's for what has just ended and took `event.seconds`."""
        now = time_ns()
        began = now - round(event.seconds * _SECOND)
        span = self._tracer.start_span(name, context=run.inside, start_time=began)
        span.set_attribute("oncekey.event", event.name)
        span.end(now)

    def _describe(self, span: Span, event: Event) -> None:
        told = self._redaction.told(event)
        span.set_attribute("oncekey.event", event.name)
        span.set_attribute("oncekey.surface", event.surface)
        span.set_attribute("oncekey.task_type", event.label)
        span.set_attribute("oncekey.key", told.key)
        if told.scope is not None:
            span.set_attribute("oncekey.scope", told.scope)
        span.set_attribute("oncekey.attempt", event.attempt)


def _span_of(reference: str) -> SpanContext | None:
    place = place_in(reference)
    if place is None:
        return None
    flags = TraceFlags(place.flags)
    return SpanContext(place.trace, place.span, is_remote=True, trace_flags=flags)
