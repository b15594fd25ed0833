"""What can be set about a bus, checked."""

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
    """The settings of one domain. Publishers, routers and readers of a domain share them."""

    domain: str
    stages: Stages = field(default_factory=Stages)
    shards: int = 4
    """Stored with the domain: whoever comes with another count is refused."""
    length: int = 10_000
    """A stream is trimmed to about this, but never past what a group has not acknowledged."""
    most: int | None = None
    """The length at which publishers are refused; ten times `length`."""
    log_length: int = 10_000
    """How many events of one job can be read again."""
    state_ttl: Duration = "1h"
    marker_ttl: Duration = "2h"
    """How long a duplicate is known, and how long the log can be read, after the last event."""
    max_data: str | int = "256KiB"
    dead_length: int = 10_000
    """About how many entries that no router could handle are kept; the oldest go first."""

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
        """The most that the JSON of an event's data may have."""
        return size(self.max_data, "max_data")


def positive(name: str, value: int) -> int:
    """The value, if it is a count."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number above zero, not {value!r}")
    return value


class BusOptions(TypedDict, total=False):
    """What else can be set; `BusSettings` says what it means."""

    shards: int
    length: int
    most: int | None
    log_length: int
    state_ttl: Duration
    marker_ttl: Duration
    max_data: str | int
    dead_length: int


def settings_of(domain: str, stages: Stages | None, options: BusOptions) -> BusSettings:
    """Return the settings, checked."""
    return BusSettings(domain, Stages() if stages is None else stages, **options)
