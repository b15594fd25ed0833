"""Count events as Prometheus metrics. Needs the extra `oncekey[prometheus]`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from threading import RLock
from typing import Any, Final

from oncekey.compat import renew_after_fork
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.observe import Event, Name

with needing("prometheus", __name__):
    from prometheus_client import (
        REGISTRY,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        Metric,
        values,
    )

# Counts are collected here until the metrics are read: updating them at once takes a lock and a
# handful of calls for each number of an event, and an event of a call has up to five.

AT_ONCE: Final = values.ValueClass is not values.MutexValue
"""Whether counts are written to files, which other processes read at any time."""


class EventCounts:
    """The events of one name, surface and task since the metrics were last read."""

    __slots__ = ("_bytes", "_checks", "_events", "checks", "events", "size")

    def __init__(self, events: Counter, size: Counter, checks: Counter | None) -> None:
        """Take the counters to add to. `checks` is None for events that do not end a check."""
        self._events, self._bytes, self._checks = events, size, checks
        self.events = 0
        self.size = 0
        self.checks = None if checks is None else 0

    def pour(self) -> None:
        """Add the counts to the counters, and start again at zero."""
        if self.events:
            self._events.inc(self.events)
            self._bytes.inc(self.size)
            self.events = self.size = 0
        if self._checks is not None and self.checks:
            self._checks.inc(self.checks)
            self.checks = 0


class CheckTimes:
    """The durations of checks since the metrics were last read."""

    def __init__(self, histogram: Histogram, bounds: Sequence[float]) -> None:
        """Take the histogram, which has these bounds and one above all."""
        made: Any = histogram  # its public interface takes only one value at a time
        self._buckets, self._sum = made._buckets, made._sum
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def pour(self) -> None:
        """Add the counts to the histogram, and start again at zero."""
        for bucket, count in zip(self._buckets, self.counts, strict=True):
            if count:
                bucket.inc(count)
        self._sum.inc(self.total)
        self.counts = [0] * len(self.counts)
        self.total = 0.0


class Collector:
    """Metrics of a registry, updated before they are read."""

    def __init__(self, metrics: Iterable[Any], pour: Callable[[], None]) -> None:
        """Take the metrics, and the function `pour` that updates them."""
        self._metrics = list(metrics)
        self._pour = pour

    def describe(self) -> Iterable[Metric]:
        """Return descriptions, with which a registry finds names that are taken."""
        return chain.from_iterable(metric.describe() for metric in self._metrics)

    def collect(self) -> Iterable[Metric]:
        """Return all metrics as they are now."""
        self._pour()
        return chain.from_iterable(metric.collect() for metric in self._metrics)


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
"""The events that end a check, and the result of the check."""

_NOUNS: Final[dict[Name, tuple[str, str]]] = {
    "new": ("runs", "Calls that were granted and ran, take-overs aside"),
    "taken_over": ("takeovers", "Calls that ran after an attempt whose end was uncertain"),
    "duplicate": ("duplicates", "Calls that were answered from the record"),
    "waiting": ("waits", "Times that a duplicate waited for the first call"),
    "busy": ("busy", "Duplicates that were refused because the first call was in progress"),
    "reused": (
        "mismatches",
        "Calls that were refused because their key belongs to other arguments",
    ),
    "held": ("held", "Attempts that nobody knows the end of, and calls refused because of them"),
    "refused": ("refusals", "Calls that did not run because the store was down"),
    "unprotected": ("unprotected_runs", "Calls that ran without protection, by the reason"),
    "completed": ("completions", "Results that were recorded"),
    "failed": ("failures", "Failures that were kept"),
    "released": ("releases", "Attempts that failed and freed their key"),
    "lost": ("lost_leases", "Attempts that were taken over before they were recorded"),
    "not_kept": ("results_not_kept", "Results that could not be kept"),
    "not_recorded": ("unrecorded", "Ends of attempts that the store could not be told in time"),
    "never_recorded": ("never_recorded", "Ends that were not recorded before their process ended"),
    "resolved": ("resolutions", "Held records that were resolved by hand"),
    "forgotten": ("forgotten", "Records that were forgotten by hand"),
    "renewal_failed": ("failed_renewals", "Renewals of a lease that failed and were tried again"),
}
"""The events of calls, and the name and help of the metric `oncekey_<noun>_total`."""

_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
_LABELS: Final = ("surface", "task_type")
_STORE_DOWN: Final = "store-down"
"""The reason of unprotected calls that have no other."""
OTHER: Final = "(other)"
"""The task label of events when there are too many tasks already."""


def _labels(name: Name) -> tuple[str, ...]:
    return (*_LABELS, "reason") if name == "unprotected" else _LABELS


class PrometheusObserver:
    """Count checks and events by surface and task. Keys are never labels: there are too many."""

    def __init__(self, registry: CollectorRegistry = REGISTRY, *, most_tasks: int = 200) -> None:
        """Register the metrics. One observer per registry serves any number of `Once`.

        Tasks beyond the first `most_tasks` are counted together.
        """
        if not isinstance(most_tasks, int) or isinstance(most_tasks, bool) or most_tasks < 1:
            msg = f"most_tasks must be a whole number above zero, but it is {most_tasks!r}"
            raise ConfigurationError(msg)
        checks = Counter(
            "idempotency_check_total",
            "Checks of a key, by what they found",
            ["result"],
            registry=None,
        )
        self._checks = {name: checks.labels(found) for name, found in _CHECKS.items()}
        times = Histogram(
            "idempotency_check_duration_seconds",
            "How long a check of a key took, waiting included",
            buckets=_BUCKETS,
            registry=None,
        )
        self._times = CheckTimes(times, _BUCKETS)
        self._counters = {
            name: Counter(f"oncekey_{noun}_total", words, _labels(name), registry=None)
            for name, (noun, words) in _NOUNS.items()
        }
        self._bytes = Counter(
            "oncekey_stored_bytes_total",
            "Bytes of results and kept failures that were recorded",
            _LABELS,
            registry=None,
        )
        self._purged = Counter(
            "oncekey_purged_total", "Expired records that were removed", registry=None
        )
        self._openings = Counter(
            "oncekey_breaker_openings_total",
            "Times that a store was found out of reach, and was no longer asked",
            registry=None,
        )
        self._open = Gauge(
            "oncekey_open_breakers",
            "Stores that are out of reach now, as this process sees them",
            registry=None,
            multiprocess_mode="livesum",
        )
        self._most_tasks = most_tasks
        self._tasks: set[str] = set()
        self._known: dict[tuple[Name, str, str, str], EventCounts] = {}
        self._lock = RLock()  # an event may interrupt another one: signals, destructors
        renew_after_fork(self)
        own = (self._bytes, self._purged, self._openings, self._open)
        registry.register(Collector([checks, times, *self._counters.values(), *own], self._pour))

    def __call__(self, event: Event, /) -> None:
        """Count the event."""
        name = event.name
        known = self._known.get((name, event.surface, event.label, event.reason))
        tally = known or self._look_up(event)
        if tally is None:
            self._count_what_is_no_call(event)
            return
        with self._lock:
            tally.events += 1
            tally.size += event.size
            # A run that ended as held is not a check; such an event has an attempt.
            if tally.checks is not None and (name != "held" or not event.attempt):
                tally.checks += 1
                seconds, times = event.seconds, self._times
                times.counts[bisect_left(_BUCKETS, seconds)] += 1
                times.total += seconds
            if AT_ONCE:
                tally.pour()
                self._times.pour()

    def _pour(self) -> None:
        """Add everything that was counted to the metrics."""
        with self._lock:
            for tally in self._known.values():
                tally.pour()
            self._times.pour()

    def after_fork(self) -> None:
        """Replace the lock, which may be held by a thread that the child does not have."""
        self._lock = RLock()  # an event may interrupt another one: signals, destructors

    def _count_what_is_no_call(self, event: Event) -> None:
        if event.name == "purged":
            self._purged.inc(event.count)
        elif event.name == "breaker_opened":
            self._openings.inc()
            self._open.inc()
        elif event.name == "breaker_closed":
            self._open.dec()

    def _look_up(self, event: Event) -> EventCounts | None:
        """Return the counts for events like this one, or None if it is not about a call."""
        name, surface, task, reason = event.name, event.surface, event.label, event.reason
        if name not in self._counters:
            return None
        with self._lock:
            if task not in self._tasks:
                if len(self._tasks) >= self._most_tasks:
                    task = OTHER
                else:
                    self._tasks.add(task)
            found = self._known.get((name, surface, task, reason))
            if found is None:
                why = (reason or _STORE_DOWN,) if name == "unprotected" else ()
                events = self._counters[name].labels(surface, task, *why)
                size = self._bytes.labels(surface, task)
                found = EventCounts(events, size, None if reason else self._checks.get(name))
                self._known[name, surface, task, reason] = found
        return found
