"""Export how many records there are, and how many wait for a person, as metrics for Prometheus.

The numbers are read from the store when they are asked for, so one process that exports them is
enough for all that use the store. `oncekey exporter` is such a process, and so is a dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.extras import needing
from oncekey.inspection.listing import count_records
from oncekey.once import Once
from oncekey.stores.base import Store
from oncekey.stores.browse import RecordCounts

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

__all__ = ["RecordGauges"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class StoreGauge(NamedTuple):
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


def gauges(store: Store) -> list[StoreGauge]:
    """Return the gauges of the store. One that is not known is left out, never zero."""
    try:
        told = count_records(store)
    except OncekeyError:
        return [StoreGauge(*_UP, {"": 0})]
    return [StoreGauge(*_UP, {"": 1}), *_of_counts(told)]


def _of_counts(told: RecordCounts) -> Iterable[StoreGauge]:
    held = told.by_status["held"]
    if told.counted("held"):
        yield StoreGauge(*_HELD, {"": held})
    if not held and told.counted("held"):
        yield StoreGauge(*_OLDEST, {"": 0})
    elif told.held_since is not None:
        yield StoreGauge(*_OLDEST, {"": max(told.now - told.held_since, 0) / 1_000_000})
    counted = {name: float(n) for name, n in told.by_status.items() if told.counted(name)}
    if counted:
        yield StoreGauge(*_RECORDS, counted)
    sampled = {name: float(n) for name, n in told.by_status.items() if n and name not in counted}
    if sampled:
        yield StoreGauge(*_ESTIMATE, sampled)


def exposition(store: Store) -> str:
    """Return the gauges of the store as Prometheus reads them."""
    lines: list[str] = []
    for name, words, values in gauges(store):
        lines += [f"# HELP {name} {words}", f"# TYPE {name} gauge"]
        lines += [
            f'{name}{{status="{status}"}} {value:g}' if status else f"{name} {value!r}"
            for status, value in values.items()
        ]
    return "\n".join(lines) + "\n"


class RecordGauges:
    """A collector of prometheus_client that reads the gauges of a store when it is asked."""

    def __init__(self, once: Once, registry: CollectorRegistry | None = None) -> None:
        """Register the gauges of the store of `once`. It needs the extra `oncekey[prometheus]`."""
        with needing("prometheus", __name__):
            from prometheus_client import REGISTRY
        if not isinstance(once, Once):
            raise ConfigurationError(f"RecordGauges takes a Once, not {once!r}")
        self._store = once.store
        (registry or REGISTRY).register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the names, with which a registry finds those that are taken."""
        from prometheus_client.core import GaugeMetricFamily

        return [GaugeMetricFamily(name, name) for name in NAMES]

    def collect(self) -> Iterable[Metric]:
        """Return the gauges as they are now."""
        from prometheus_client.core import GaugeMetricFamily

        for name, words, values in gauges(self._store):
            labels = [] if "" in values else ["status"]
            family = GaugeMetricFamily(name, words, labels=labels)
            for status, value in values.items():
                family.add_metric([status] if status else [], value)
            yield family
