"""The settings of a bus, with their checks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypedDict

from oncekey.errors import ConfigurationError
from oncekey.events.stages import Stages
from oncekey.policy import Duration, seconds, size

_DOMAIN: Final = re.compile(r"[^\s{}]{1,100}")


@dataclass(frozen=True)
class BusSettings:
    """The settings of one domain, which its publishers, routers and readers share."""

    domain: str
    stages: Stages = field(default_factory=Stages)
    shards: int = 4
    """The number of shards. It is stored with the domain, and another number is refused."""
    length: int = 10_000
    """The length to which a stream is trimmed, but never past what a group has not acknowledged."""
    most: int | None = None
    """The length at which publishers are refused; by default ten times `length`."""
    log_length: int = 10_000
    """The number of events of one job that can be read again."""
    state_ttl: Duration = "1h"
    marker_ttl: Duration = "2h"
    """The time after the last event for which duplicates are known and the log can be read."""
    max_data: str | int = "256KiB"
    dead_length: int = 10_000
    """The approximate number of dead entries that are kept; the oldest are dropped first."""

    def __post_init__(self) -> None:
        if not isinstance(self.domain, str) or not _DOMAIN.fullmatch(self.domain):
            msg = f"a domain is a word without spaces and braces, but this one is {self.domain!r}"
            raise ConfigurationError(msg)
        if not isinstance(self.stages, Stages):
            raise ConfigurationError(f"stages must be Stages(...), not {self.stages!r}")
        for name in ("shards", "length", "log_length", "dead_length"):
            positive(name, getattr(self, name))
        if self.most is not None and positive("most", self.most) < self.length:
            raise ConfigurationError(f"most must be at least length, {self.length}")
        if self.marker_seconds < self.state_seconds:
            msg = "marker_ttl must not be shorter than state_ttl: a job that is forgotten while"
            raise ConfigurationError(f"{msg} its state is known would start over and go back")
        size(self.max_data, "max_data")

    @cached_property
    def hard_cap(self) -> int:
        """The length at which publishers are refused."""
        return 10 * self.length if self.most is None else self.most

    @cached_property
    def slack(self) -> int:
        """How far a stream may grow past its length before it is trimmed."""
        return max(1, self.length // 100)

    @cached_property
    def state_seconds(self) -> int:
        """The lifetime of a state, in whole seconds."""
        return max(1, round(seconds(self.state_ttl, "state_ttl")))

    @cached_property
    def marker_seconds(self) -> int:
        """The lifetime of markers and logs, in whole seconds."""
        return max(1, round(seconds(self.marker_ttl, "marker_ttl")))

    @cached_property
    def data_bytes(self) -> int:
        """The greatest size of an event's data as JSON, in bytes."""
        return size(self.max_data, "max_data")


def positive(name: str, value: int) -> int:
    """Return the value. Raise ConfigurationError if it is not a whole number above zero."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number above zero, not {value!r}")
    return value


class BusOptions(TypedDict, total=False):
    """The optional settings of a bus. `BusSettings` says what they mean."""

    shards: int
    length: int
    most: int | None
    log_length: int
    state_ttl: Duration
    marker_ttl: Duration
    max_data: str | int
    dead_length: int


def settings_of(domain: str, stages: Stages | None, options: BusOptions) -> BusSettings:
    """Return the checked settings."""
    return BusSettings(domain, Stages() if stages is None else stages, **options)
