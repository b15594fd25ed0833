"""The times of a record, as moments and as how long ago."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Final = 1_000_000
_UNITS: Final = (
    ("d", 86400 * SECOND),
    ("h", 3600 * SECOND),
    ("min", 60 * SECOND),
    ("s", SECOND),
    ("ms", 1000),
)


def now() -> int:
    """Microseconds by the clock of this machine; only ages are told by it."""
    return time.time_ns() // 1000


def iso(at: int) -> str:
    """The moment for programs."""
    return (_EPOCH + timedelta(microseconds=at)).isoformat()


def moment(at: int) -> str:
    """The moment for people, in UTC."""
    return f"{_EPOCH + timedelta(microseconds=at):%Y-%m-%d %H:%M:%S} UTC"


def length(span: int) -> str:
    """How long it is, in its largest whole unit: `3 min`."""
    for name, size in _UNITS:
        if span >= size:
            return f"{span // size} {name}"
    return "0 s"


def beside(at: int, present: int) -> str:
    """Where the moment lies: `3 min ago`, `in 3 min`."""
    if abs(at - present) < SECOND:
        return "just now"
    return f"in {length(at - present)}" if at > present else f"{length(present - at)} ago"
