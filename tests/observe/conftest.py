"""Everything that observes at once: logs of both kinds, metrics and spans."""

import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from oncekey.observe.log import LogObserver
from oncekey.observe.opentelemetry import OpenTelemetryObserver
from oncekey.observe.prometheus import PrometheusObserver
from oncekey.observe.structlog import StructlogObserver


class Watched:
    """The observers of one `Once`, and what they have seen."""

    def __init__(self, caplog, entries):
        self.registry = CollectorRegistry()
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._caplog = caplog
        self._entries = entries

    def observers(self):
        return [
            LogObserver(),
            StructlogObserver(),
            PrometheusObserver(self.registry),
            OpenTelemetryObserver(self.provider),
        ]

    def lines(self):
        """Every log record, with all its fields."""
        return [f"{record.getMessage()} {vars(record)}" for record in self._caplog.records]

    def entries(self):
        return [str(entry) for entry in self._entries]

    def spans(self):
        return [span.to_json() for span in self.exporter.get_finished_spans()]

    def metrics(self):
        return generate_latest(self.registry).decode().splitlines()

    def everything(self):
        return [*self.lines(), *self.entries(), *self.spans(), *self.metrics()]

    def sample(self, name, **labels):
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def watched(caplog):
    caplog.set_level(logging.DEBUG)  # the root, and so everybody
    with capture_logs() as entries:
        made = Watched(caplog, entries)
        yield made
    made.provider.shutdown()
