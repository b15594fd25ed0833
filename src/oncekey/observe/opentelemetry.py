"""Calls as spans of OpenTelemetry. Needs the extra `oncekey[opentelemetry]`.

A call that runs is one span, `oncekey.run`, with `oncekey.claim` and `oncekey.settle` inside it;
the spans of the code that runs are inside it as well. A duplicate is a span `oncekey.replay`,
linked to the `oncekey.run` whose answer it got, wherever and whenever that was. What is refused is
a span `oncekey.refuse`.
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

# A record says at the end of its reference which trace its run belongs to, in the form of the
# `traceparent` of W3C Trace Context, after a space where the reference says more.
_FORM: Final = re.compile(r"(?:^| )00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$")


class SpanPlace(NamedTuple):
    """A span among all others."""

    trace: int
    span: int
    flags: int


def with_place(reference: str, place: SpanPlace) -> str:
    """The reference, which says from now on where the run is traced."""
    written = f"00-{place.trace:032x}-{place.span:016x}-{place.flags:02x}"
    return f"{reference} {written}" if reference else written


def place_in(reference: str) -> SpanPlace | None:
    """Where the run of a record is traced, if it says so."""
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
    """What is hung on a call: its span, which its code can be inside of."""

    __slots__ = ("_attached", "granted", "inside", "over", "span", "unprotected")

    def __init__(self, span: Span, inside: context.Context) -> None:
        """The span has begun; `inside` is the context of what happens in it."""
        self.span = span
        self.inside = inside
        self.granted = self.unprotected = self.over = False
        self._attached: Token[context.Context] | None = None

    def __del__(self) -> None:
        """Where nobody told how it ended, it was cut off."""
        self.end()

    def end(self) -> None:
        """The span has ended."""
        if not self.over:
            self.over = True
            self.span.end()

    def attach(self) -> None:
        """Spans that are begun from here on are inside this one."""
        self._attached = context.attach(self.inside)

    def detach(self) -> None:
        """They are not any more; the context is the one in which it was attached."""
        attached, self._attached = self._attached, None
        if attached is not None:
            context.detach(attached)
        if self.unprotected:  # its end is recorded when the store is back; nobody waits for that
            self.end()


class OpenTelemetryObserver:
    """Makes spans of calls. Keys stand in them as in the log of `LogObserver`."""

    def __init__(
        self, tracer_provider: trace.TracerProvider | None = None, *, redact: Redact = None
    ) -> None:
        """Without a provider the global one is used, as it is when the first call is made."""
        if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
            msg = f"tracer_provider must be a TracerProvider, but it is {tracer_provider!r}"
            raise ConfigurationError(msg)
        self._tracer = trace.get_tracer("oncekey", tracer_provider=tracer_provider)
        self._redaction = Redaction(redact)

    def entering(self, call: Call) -> Call:
        """The call with a span of its own; its record will say which."""
        span = self._tracer.start_span("oncekey.run")
        own = span.get_span_context()
        if not own.is_valid:  # nobody collects spans
            return call
        run = TracedRun(span, trace.set_span_in_context(span))
        if call.surface == "message":  # its reference is the message's id, and must stay that
            return replace(call, trace=run)
        place = SpanPlace(own.trace_id, own.span_id, own.trace_flags)
        return replace(call, trace=run, reference=with_place(call.reference, place))

    def wants(self, name: Name) -> bool:
        """Whether spans are made of events of this name."""
        return name in _WANTED

    def __call__(self, event: Event, /) -> None:
        """The span of the call says it; spans of what has just been done are made afterwards."""
        run = event.trace
        if not isinstance(run, TracedRun) or run.over:
            return
        if run.granted:
            self._ended(run, event)
        elif event.name in _SETTLED:  # what `reconcile` found, before the call itself is answered
            self._part("oncekey.settle", run, event)
        else:
            self._part("oncekey.claim", run, event)
            self._describe(run.span, event)
            self._answered(run, event)

    def _answered(self, run: TracedRun, event: Event) -> None:
        """The call runs, or is over."""
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
        """The run is over, or another attempt has answered for it."""
        run.span.set_attribute("oncekey.ended", event.name)
        if event.name in _SETTLED or event.name == "held":
            self._part("oncekey.settle", run, event)
        if event.name != "completed":
            run.span.set_status(Status(StatusCode.ERROR, LINES[event.name][1]))
        run.end()

    def _part(self, name: str, run: TracedRun, event: Event) -> None:
        """A span inside the call's, of what took so long and is over now."""
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
