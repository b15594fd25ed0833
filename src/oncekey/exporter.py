"""Export what waits, for a person or to be sent, as metrics for Prometheus.

The numbers are read from the store and the outbox when they are asked for, so one process that
exports them is enough for all that use them. `oncekey exporter` is such a process, and so is a
dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.extras import needing
from oncekey.inspection.listing import count_records
from oncekey.once import Once
from oncekey.outbox.lookup import existing_outbox
from oncekey.outbox.outbox import own_connections
from oncekey.stores.base import Store
from oncekey.stores.browse import RecordCounts

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["OutboxGauges", "RecordGauges"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Gauge(NamedTuple):
    """A metric, and its value for each status; a value without a status has the status ''."""

    name: str
    words: str
    values: dict[str, float]


_UP: Final = ("oncekey_store_up", "Whether the store answered when the numbers were read")
_HELD: Final = ("oncekey_held_records", "Records that are held until somebody says how they ended")
_OLDEST: Final = ("oncekey_oldest_held_seconds", "For how long the oldest of them is held")
_RECORDS: Final = ("oncekey_records", "Living records by status, where they were counted")
_ESTIMATE: Final = (
    "oncekey_estimated_records",
    "Living records by status, where they were estimated from a sample that has some",
)
NAMES: Final = tuple(name for name, _ in (_UP, _HELD, _OLDEST, _RECORDS, _ESTIMATE))
_OUTBOX_UP: Final = (
    "oncekey_outbox_up",
    "Whether the database of the outbox answered when the numbers were read",
)
_UNSENT: Final = (
    "oncekey_outbox_oldest_seconds",
    "For how long the oldest message that is not sent yet has waited",
)
_MESSAGES: Final = (
    "oncekey_outbox_messages",
    "Messages in the outbox by status; those that were sent long ago are deleted",
)
OUTBOX_NAMES: Final = tuple(name for name, _ in (_OUTBOX_UP, _UNSENT, _MESSAGES))


def gauges(store: Store) -> list[Gauge]:
    """Return the gauges of the store. One that is not known is left out, never zero."""
    try:
        told = count_records(store)
    except OncekeyError:
        return [Gauge(*_UP, {"": 0})]
    return [Gauge(*_UP, {"": 1}), *_of_counts(told)]


def _of_counts(told: RecordCounts) -> Iterable[Gauge]:
    held = told.by_status["held"]
    if told.counted("held"):
        yield Gauge(*_HELD, {"": held})
    if not held and told.counted("held"):
        yield Gauge(*_OLDEST, {"": 0})
    elif told.held_since is not None:
        yield Gauge(*_OLDEST, {"": max(told.now - told.held_since, 0) / 1_000_000})
    counted = {name: float(n) for name, n in told.by_status.items() if told.counted(name)}
    if counted:
        yield Gauge(*_RECORDS, counted)
    sampled = {name: float(n) for name, n in told.by_status.items() if n and name not in counted}
    if sampled:
        yield Gauge(*_ESTIMATE, sampled)


def outbox_gauges(outbox: str | Once) -> list[Gauge]:
    """Return the gauges of the outbox of a database; none if it has no outbox."""
    try:
        with existing_outbox(outbox) as found:
            if found is None:
                return []
            told = found.figures()
    except OncekeyError:
        return [Gauge(*_OUTBOX_UP, {"": 0})]
    by_status = {"pending": told.pending, "dead": told.dead, "sent": told.sent}
    return [
        Gauge(*_OUTBOX_UP, {"": 1}),
        Gauge(*_UNSENT, {"": told.oldest}),
        Gauge(*_MESSAGES, {name: float(n) for name, n in by_status.items()}),
    ]


def exposition(store: Store, outbox: str | None = None) -> str:
    """Return the gauges of the store, and of the outbox of a database, as Prometheus reads them."""
    lines: list[str] = []
    further = [] if outbox is None else outbox_gauges(outbox)
    for name, words, values in (*gauges(store), *further):
        lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
        lines += [
            f'{name}{{status="{status}"}} {value:.17g}' if status else f"{name} {value!r}"
            for status, value in values.items()
        ]
    return "\n".join(lines) + "\n"


class RecordGauges:
    """A collector of prometheus_client that reads the gauges of a store when it is asked."""

    def __init__(self, once: Once, registry: CollectorRegistry | None = None) -> None:
        """Register the gauges of the store of `once`. It needs the extra `oncekey[prometheus]`."""
        if not isinstance(once, Once):
            raise ConfigurationError(f"RecordGauges takes a Once, not {once!r}")
        self._store = once.store
        _register(self, registry)

    def describe(self) -> Iterable[Metric]:
        """Return the names, with which a registry finds those that are taken."""
        return _described(NAMES)

    def collect(self) -> Iterable[Metric]:
        """Return the gauges as they are now."""
        return _families(gauges(self._store))


class OutboxGauges:
    """A collector of prometheus_client that reads the gauges of an outbox when it is asked."""

    def __init__(self, outbox: str | Once, registry: CollectorRegistry | None = None) -> None:
        """Register the gauges of the outbox of a database, which may be made later.

        `outbox` is the URL of the database, or a `Once` whose store is there. It needs the extra
        `oncekey[prometheus]`. Raise ConfigurationError for what can have no outbox.
        """
        own_connections(outbox).close()
        self._outbox = outbox
        _register(self, registry)

    def describe(self) -> Iterable[Metric]:
        """Return the names, with which a registry finds those that are taken."""
        return _described(OUTBOX_NAMES)

    def collect(self) -> Iterable[Metric]:
        """Return the gauges as they are now."""
        return _families(outbox_gauges(self._outbox))


def _register(collector: RecordGauges | OutboxGauges, registry: CollectorRegistry | None) -> None:
    with needing("prometheus", __name__):
        from prometheus_client import REGISTRY
    (registry or REGISTRY).register(collector)


def _described(names: Iterable[str]) -> list[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    return [GaugeMetricFamily(name, name) for name in names]


def _families(found: Iterable[Gauge]) -> Iterable[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for name, words, values in found:
        labels = [] if "" in values else ["status"]
        family = GaugeMetricFamily(name, words, labels=labels)
        for status, value in values.items():
            family.add_metric([status] if status else [], value)
        yield family
