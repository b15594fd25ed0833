"""Counts on their way to Prometheus: kept here until somebody collects them.

To count at once takes a lock and a handful of calls for each figure of an event. An event of a call
has up to five.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

from oncekey.extras import needing

with needing("prometheus", __name__):
    from prometheus_client import Counter, Histogram, Metric, values

AT_ONCE: Final = values.ValueClass is not values.MutexValue
"""Whether counts are written to files, which other processes collect at any time."""


class Tally:
    """The events of one name, surface and task since the last time that somebody collected."""

    __slots__ = ("_bytes", "_checks", "_events", "checks", "events", "size")

    def __init__(self, events: Counter, size: Counter, checks: Counter | None) -> None:
        """What is counted goes to these counters. An event without the last ends no check."""
        self._events, self._bytes, self._checks = events, size, checks
        self.events = 0
        self.size = 0
        self.checks = None if checks is None else 0

    def pour(self) -> None:
        """The counters have it."""
        if self.events:
            self._events.inc(self.events)
            self._bytes.inc(self.size)
            self.events = self.size = 0
        if self._checks is not None and self.checks:
            self._checks.inc(self.checks)
            self.checks = 0


class Times:
    """How many checks took how long, since the last time that somebody collected."""

    def __init__(self, histogram: Histogram, bounds: Sequence[float]) -> None:
        """The histogram has these bounds, and one above all."""
        made: Any = histogram  # it takes one time after the other, and several only in this way
        self._buckets, self._sum = made._buckets, made._sum  # noqa: SLF001 - as it says above
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def pour(self) -> None:
        """The histogram has it."""
        for bucket, count in zip(self._buckets, self.counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(self.total)
        self.counts = [0] * len(self.counts)
        self.total = 0.0


class Collector:
    """Metrics of a registry, brought up to date before they are read."""

    def __init__(self, metrics: Iterable[Any], pour: Callable[[], None]) -> None:
        """`pour` brings them up to date."""
        self._metrics = list(metrics)
        self._pour = pour

    def describe(self) -> Iterable[Metric]:
        """What is collected, for those who look for names that are taken."""
        return chain.from_iterable(metric.describe() for metric in self._metrics)

    def collect(self) -> Iterable[Metric]:
        """All metrics as they are now."""
        self._pour()
        return chain.from_iterable(metric.collect() for metric in self._metrics)
