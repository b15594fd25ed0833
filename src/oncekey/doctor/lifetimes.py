"""Checks of lifetimes and clocks, which are the same for every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from oncekey.doctor.finding import Finding, danger, fine, warning
from oncekey.errors import ConfigurationError
from oncekey.policy import Duration, seconds

SKEW: Final = 1.0
"""The number of seconds by which two clocks may differ."""
_UNITS: Final = (("d", 86400), ("h", 3600), ("min", 60))


class Retention(Struct, frozen=True):
    """Where a bus keeps its events, and for how long it recognises a duplicate event."""

    domain: str
    shards: int
    marker_seconds: int

    @classmethod
    def of(cls, settings: object) -> Retention:
        """Take them from the settings of a bus. Raise `ConfigurationError` for anything else."""
        try:
            return cls(*(getattr(settings, name) for name in cls.__struct_fields__))
        except AttributeError:
            msg = f"events takes the settings of a bus, as in events=bus.settings, not {settings!r}"
            raise ConfigurationError(msg) from None


class Expected(Struct, frozen=True, kw_only=True):
    """What the user said: how long records live, and how late duplicates may come."""

    ttl: float | None = None
    horizon: float | None = None
    events: Retention | None = None

    @classmethod
    def of(
        cls, ttl: Duration | None, retry_horizon: Duration | None, events: object | None
    ) -> Expected:
        """Check the user's values and return them in seconds."""
        return cls(
            ttl=None if ttl is None else seconds(ttl, "ttl"),
            horizon=None if retry_horizon is None else seconds(retry_horizon, "retry_horizon"),
            events=None if events is None else Retention.of(events),
        )


def lifetimes(asked: Expected) -> Iterator[Finding]:
    """Yield whether records live until the last retry may come."""
    if asked.horizon is None:
        return
    if asked.ttl is not None:
        yield _lives("ttl", asked.ttl, asked.horizon, "a late retry runs again")
    if asked.events is not None:
        known = float(asked.events.marker_seconds)
        yield _lives("marker_ttl", known, asked.horizon, "an event that is sent again is a new one")


def skewed(check: str, skew: float, doubt: float) -> Finding:
    """Return a finding about the clocks. `skew` is how far the store's clock is ahead of ours.

    `doubt` is the error of that measurement. Both are in seconds.
    """
    evidence = f"the store's clock is {skew:+.3f} s from this machine's, give or take {doubt:.3f} s"
    if abs(skew) - doubt <= SKEW:
        return fine(check, "both clocks agree", evidence)
    meaning = "the clocks of store and client differ; leases and lifetimes follow the store's"
    return warning(check, meaning, evidence, "let both machines follow one time server (NTP)")


def retained(log: int, markers: int, name: str) -> Finding:
    """Return a finding about how many milliseconds the log and the markers of a job have left."""
    evidence = f"{name}: log {log / 1000:.0f} s, markers {markers / 1000:.0f} s left"
    check = "events.retention"
    if log + SKEW * 1000 >= markers:
        return fine(check, "logs of events live as long as what tells duplicates apart", evidence)
    meaning = "a log of events ends before its markers do: a reader cannot get again what a "
    fix = "let nobody else set expiry times on the keys of the domain"
    return danger(check, f"{meaning}publisher is told is there already", evidence, fix)


def _lives(name: str, lifetime: float, horizon: float, loss: str) -> Finding:
    check = f"lifetime.{name}"
    evidence = f"{name}={length(lifetime)}, retry horizon={length(horizon)}"
    if lifetime >= horizon:
        return fine(check, "records outlive the last retry", evidence)
    fix = f"set {name} to {length(horizon)} or more"
    return danger(check, f"records end before the last retry may come: {loss}", evidence, fix)


def length(span: float) -> str:
    """Return the duration in its largest unit: `36h`."""
    for unit, size in _UNITS:
        if span >= size and span % size == 0:
            return f"{span / size:g}{unit}"
    return f"{span:g}s"
