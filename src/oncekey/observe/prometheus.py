"""Events as Prometheus metrics. Needs the extra `oncekey[prometheus]`."""

from __future__ import annotations

from typing import Final

from oncekey.extras import needing
from oncekey.observe import Event, Name

with needing("prometheus", __name__):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

_CHECKS: Final[dict[Name, str]] = {
    "new": "new",
    "taken_over": "new",
    "duplicate": "duplicate",
    "busy": "duplicate",
    "reused": "duplicate",
    "held": "duplicate",
    "refused": "error",
    "unprotected": "error",
}
"""The events that end a check, and what the check found."""

_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)


class PrometheusObserver:
    """Counts checks and events. Keys are never labels: there are too many of them."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """The metrics are registered; one observer per registry serves any number of `Once`."""
        self._checks = Counter(
            "idempotency_check_total",
            "Checks of a key, by what they found",
            ["result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "idempotency_check_duration_seconds",
            "How long a check of a key took, waiting included",
            buckets=_BUCKETS,
            registry=registry,
        )
        self._events = Counter(
            "oncekey_events_total",
            "What happened to protected calls, by event and task",
            ["event", "task_type"],
            registry=registry,
        )

    def __call__(self, event: Event, /) -> None:
        """Count the event."""
        found = _CHECKS.get(event.name)
        if found is not None:
            self._checks.labels(found).inc()
            self._seconds.observe(event.seconds)
        self._events.labels(event.name, event.label).inc(event.count)
