"""Calls as spans, as an exporter in memory gets them."""

import asyncio
import gc
import logging
import subprocess
import sys
from contextlib import suppress

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from oncekey import (
    ConfigurationError,
    Done,
    KeyReusedError,
    NotDone,
    Once,
    OutcomeUnknownError,
    StoreError,
    Unknown,
)
from oncekey.observe.opentelemetry import (
    OpenTelemetryObserver,
    SpanPlace,
    TracedRun,
    place_in,
    with_place,
)
from oncekey.policy import Policy
from oncekey.stores import MemoryStore, SQLiteStore
from tests.faulty import FaultyStore


class Traced:
    """A provider whose spans are kept here."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("test")

    def once(self, store=None, **options):
        observer = OpenTelemetryObserver(self.provider)
        return Once(store or MemoryStore(), observers=[observer], **options)

    def spans(self):
        """What was exported since the last look, by name."""
        found = self.exporter.get_finished_spans()
        self.exporter.clear()
        return {span.name: span for span in found}


@pytest.fixture
def traced():
    made = Traced()
    yield made
    made.provider.shutdown()


def test_a_run_is_a_span_with_its_claim_its_code_and_its_settling(traced):
    def charge(amount):
        with traced.tracer.start_as_current_span("gateway"):
            return amount

    once = traced.once(scope="billing").options(label="charge")
    with traced.tracer.start_as_current_span("request") as request:
        assert once.run("order-1", charge, 40) == 40
        assert trace.get_current_span() is request
    spans = traced.spans()
    run = spans["oncekey.run"]
    assert run.parent.span_id == request.get_span_context().span_id
    for name in ("oncekey.claim", "gateway", "oncekey.settle"):
        assert spans[name].parent.span_id == run.context.span_id
    assert run.start_time <= spans["oncekey.claim"].end_time <= spans["gateway"].start_time
    assert spans["gateway"].end_time <= spans["oncekey.settle"].end_time <= run.end_time
    assert dict(run.attributes) == {
        "oncekey.event": "new",
        "oncekey.surface": "function",
        "oncekey.task_type": "charge",
        "oncekey.key": "order-1",
        "oncekey.scope": "billing",
        "oncekey.attempt": 1,
        "oncekey.ended": "completed",
    }
    assert run.status.status_code is StatusCode.UNSET


def test_a_replay_is_linked_to_the_run_whose_answer_it_got(traced):
    once = traced.once()
    with traced.tracer.start_as_current_span("first request"):
        once.run("k", lambda: 7)
    run = traced.spans()["oncekey.run"]
    with traced.tracer.start_as_current_span("second request"):
        assert once.run("k", lambda: 8) == 7
    spans = traced.spans()
    replay = spans["oncekey.replay"]
    assert set(spans) == {"oncekey.claim", "oncekey.replay", "second request"}
    assert replay.context.trace_id != run.context.trace_id
    [link] = replay.links
    assert (link.context.trace_id, link.context.span_id) == (
        run.context.trace_id,
        run.context.span_id,
    )
    assert link.context.is_remote
    assert spans["oncekey.claim"].parent.span_id == replay.context.span_id


RUN_ELSEWHERE = """
import sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id, get_current_span
from oncekey import Once
from oncekey.observe.opentelemetry import OpenTelemetryObserver

def where():
    context = get_current_span().get_span_context()
    return f"{format_trace_id(context.trace_id)} {format_span_id(context.span_id)}"

once = Once(sys.argv[1], observers=[OpenTelemetryObserver(TracerProvider())])
print(once.options(fingerprint=None).run("k", where))
once.close()
"""


def test_the_run_of_another_process_is_linked_too(traced, tmp_path):
    url = f"sqlite:///{tmp_path}/once.db"
    ran = subprocess.run(
        [sys.executable, "-c", RUN_ELSEWHERE, url], capture_output=True, text=True, check=True
    )
    once = traced.once(url).options(fingerprint=None)
    assert once.run("k", lambda: pytest.fail("it ran")) == ran.stdout.strip()
    once.close()
    [link] = traced.spans()["oncekey.replay"].links
    traced_there = f"{link.context.trace_id:032x} {link.context.span_id:016x}"
    assert traced_there == ran.stdout.strip()


def test_the_record_says_where_and_keeps_its_reference(traced):
    once = traced.once()
    once.options(reference="order 7").run("a", lambda: 7)
    once.run("b", lambda: 7)
    run = traced.spans()["oncekey.run"]
    reference = once.get("b").reference
    assert place_in(reference)[:2] == (run.context.trace_id, run.context.span_id)
    assert place_in(reference).flags & 1
    assert len(reference) == 55
    assert once.get("a").reference.startswith("order 7 00-")


async def test_coroutines_are_traced_alike(traced):
    async def charge():
        with traced.tracer.start_as_current_span("gateway"):
            await asyncio.sleep(0)
            return 7

    once = traced.once()
    first, *others = await asyncio.gather(*(once.run_async("k", charge) for _ in range(4)))
    assert {first, *others} == {7}
    found = traced.exporter.get_finished_spans()
    [run] = [span for span in found if span.name == "oncekey.run"]
    [gateway] = [span for span in found if span.name == "gateway"]
    replays = [span for span in found if span.name == "oncekey.replay"]
    assert gateway.parent.span_id == run.context.span_id
    assert [replay.links[0].context.span_id for replay in replays] == [run.context.span_id] * 3
    async with once.attempt("block") as attempt:
        inside = trace.get_current_span()
        attempt.complete  # noqa: B018 - the block completes it
    assert inside.get_span_context().span_id == traced.spans()["oncekey.run"].context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


# How it ends otherwise


def fail(error):
    def function():
        raise error

    return function


def test_what_fails_is_a_span_with_an_error(traced):
    once = traced.once(policy=Policy(keep=(KeyError,), on_crash="hold"))
    for key, error, ended in [
        ("a", KeyError("kept"), "failed"),
        ("b", ValueError("free"), "released"),
        ("c", TimeoutError("who knows"), "held"),
    ]:
        with suppress(type(error)):
            once.run(key, fail(error))
        spans = traced.spans()
        assert set(spans) == {"oncekey.claim", "oncekey.run", "oncekey.settle"}
        run = spans["oncekey.run"]
        assert run.attributes["oncekey.ended"] == ended
        assert run.status.status_code is StatusCode.ERROR
        assert "who knows" not in str(run.to_json())


def test_what_is_refused_is_a_span_with_an_error(traced):
    once = traced.once(policy=Policy(on_crash="hold"))
    once.run("a", abs, -1)
    with suppress(TimeoutError):
        once.run("b", fail(TimeoutError()))
    traced.spans()
    with pytest.raises(KeyReusedError):
        once.run("a", abs, -2)
    refused = traced.spans()["oncekey.refuse"]
    assert refused.attributes["oncekey.event"] == "reused"
    assert refused.status.status_code is StatusCode.ERROR
    with pytest.raises(OutcomeUnknownError):
        once.run("b", fail(TimeoutError()))
    assert traced.spans()["oncekey.refuse"].attributes["oncekey.event"] == "held"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (Done(7), {"oncekey.settle", "oncekey.claim", "oncekey.replay"}),
        (NotDone(), {"oncekey.claim", "oncekey.run", "oncekey.settle"}),
        (Unknown(), {"oncekey.claim", "oncekey.refuse"}),
    ],
)
def test_what_reconcile_finds_is_one_span(traced, said, names, caplog):
    once = traced.once(policy=Policy(quiet="1ms")).options(reconcile=lambda record: said)
    with suppress(TimeoutError):
        once.run("k", fail(TimeoutError()))
    traced.spans()
    with suppress(OutcomeUnknownError, TimeoutError):
        once.run("k", fail(TimeoutError()))
    assert set(traced.spans()) == names
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


def test_an_unprotected_run_ends_with_its_code(traced):
    store = FaultyStore(MemoryStore())
    store.cut_off("claim", 99)
    once = traced.once(store, policy=Policy(fail_mode="open"))
    assert once.run("k", lambda: 7) == 7
    assert traced.spans()["oncekey.run"].attributes["oncekey.event"] == "unprotected"
    with pytest.raises(StoreError):
        once.options(fail_mode="closed").run("other", lambda: 7)
    assert traced.spans()["oncekey.refuse"].attributes["oncekey.event"] == "refused"
    store.heal()


def test_a_run_that_is_cut_off_is_a_span_all_the_same(traced):
    once = traced.once()

    def steps():
        with once.attempt("k"):
            yield
            pytest.fail("it went on")

    generator = steps()
    next(generator)
    generator.close()
    del generator
    gc.collect()
    assert "oncekey.run" in traced.spans()


# Who does not want it


def test_without_a_provider_nothing_is_traced_and_nothing_is_kept():
    once = Once(MemoryStore(), observers=[OpenTelemetryObserver(trace.NoOpTracerProvider())])
    assert [once.run("k", lambda: 7) for _ in range(2)] == [7, 7]
    assert once.get("k").reference == ""


def test_what_is_not_sampled_costs_little_and_is_still_known(traced):
    provider = TracerProvider(sampler=ALWAYS_OFF)
    once = Once(MemoryStore(), observers=[OpenTelemetryObserver(provider)])
    assert [once.run("k", lambda: 7) for _ in range(2)] == [7, 7]
    assert not place_in(once.get("k").reference).flags & 1


def test_what_is_no_provider_is_refused():
    with pytest.raises(ConfigurationError, match="tracer_provider must be a TracerProvider"):
        OpenTelemetryObserver("otlp://collector")


def test_keys_can_be_hidden(traced):
    observer = OpenTelemetryObserver(traced.provider, redact=True)
    Once(MemoryStore(), observers=[observer], scope="ann").run("secret", lambda: 7)
    text = "".join(span.to_json() for span in traced.exporter.get_finished_spans())
    assert "secret" not in text
    assert "ann" not in text


def test_protection_that_is_off_is_not_traced(traced):
    once = traced.once(active=False)
    assert once.run("k", lambda: 7) == 7
    assert not traced.spans()


def test_a_trace_in_a_message_would_be_in_the_way_of_its_id(traced, calling):
    call = OpenTelemetryObserver(traced.provider).entering(
        calling(surface="message", reference="m-1")
    )
    assert (call.reference, call.trace is None) == ("m-1", False)


def test_the_trace_survives_a_take_over(traced, tmp_path):
    store = SQLiteStore(tmp_path / "once.db")
    once = traced.once(store)
    with suppress(TimeoutError):
        once.run("k", fail(TimeoutError()))
    once.options(fingerprint=None).run("k", lambda: 7)
    run = [one for one in traced.exporter.get_finished_spans() if one.name == "oncekey.run"][-1]
    assert run.attributes["oncekey.event"] == "taken_over"
    assert place_in(once.get("k").reference).span == run.context.span_id
    once.close()


# The form

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
WRITTEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_form_is_that_of_w3c():
    assert with_place("", SpanPlace(TRACE, SPAN, 1)) == WRITTEN
    assert with_place("m-1", SpanPlace(TRACE, SPAN, 1)) == f"m-1 {WRITTEN}"
    assert place_in(WRITTEN) == place_in(f"m-1 {WRITTEN}") == (TRACE, SPAN, 1)


@pytest.mark.parametrize(
    "reference",
    ["", "m-1", f"x{WRITTEN}", f"{WRITTEN} ", WRITTEN.upper(), f"00-{'0' * 32}-{'0' * 16}-01"],
)
def test_what_is_no_trace_is_not_taken_for_one(reference):
    assert place_in(reference) is None


def test_no_warning_of_opentelemetry_was_provoked(traced, caplog):
    caplog.set_level(logging.DEBUG, "opentelemetry")
    once = traced.once()
    for _ in range(2):
        with once.attempt("k"):
            pass
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


def test_a_run_that_nobody_is_inside_of_can_be_left():
    run = TracedRun(trace.INVALID_SPAN, {})
    run.detach()
    assert not run.over
