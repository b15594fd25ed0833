"""Prometheus metrics of events. Needs the extra `oncekey[prometheus]`."""

from __future__ import annotations

from typing import Final

from oncekey.events.observers import Happening, Name
from oncekey.extras import needing

with needing("prometheus", __name__):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

_COUNTERS: Final[dict[Name, tuple[str, str]]] = {
    "published": ("published", "Events that were appended"),
    "duplicate": ("duplicates", "Events that were published again"),
    "differs": ("differing", "Events that were published again with other data"),
    "refused": ("refused", "Events that were refused because a shard's stream was full"),
    "trimmed": ("trimmed", "Acknowledged entries that are gone from a shard's stream"),
    "routed": ("routed", "Entries that a router has handled"),
    "reclaimed": ("reclaimed", "Entries that were taken from a router that died or hangs"),
    "dead": ("dead", "Entries that no router could handle"),
    "slow": ("slow", "Responses that ended because a client let too much wait"),
    "lost": ("lost", "Entries that somebody deleted before a router had them"),
}


class PrometheusObserver:
    """Counts by domain. Jobs are never labels: there are too many of them."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Register the metrics. One observer per registry serves any number of domains."""
        self._counters = {
            name: Counter(f"oncekey_events_{noun}_total", text, ["domain"], registry=registry)
            for name, (noun, text) in _COUNTERS.items()
        }
        self._resyncs = Counter(
            "oncekey_events_resyncs_total",
            "Readers that were told that their place is gone, by reason",
            ["domain", "reason"],
            registry=registry,
        )
        self._followers = Gauge(
            "oncekey_events_followers",
            "Those who follow a job in this process",
            ["domain"],
            registry=registry,
        )

    def __call__(self, happening: Happening, /) -> None:
        """Count it."""
        domain, count = happening.domain, happening.count
        counter = self._counters.get(happening.name)
        if counter is not None:
            counter.labels(domain).inc(count)
        elif happening.name == "resync":
            self._resyncs.labels(domain, happening.reason).inc(count)
        else:
            self._followers.labels(domain).inc(count if happening.name == "joined" else -count)
