"""The times of a record, as moments and as how long ago."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = 1_000_000
_UNITS: Final = (("d", 86400 * _SECOND), ("h", 3600 * _SECOND), ("min", 60 * _SECOND))


def now() -> int:
    """Microseconds by the clock of this machine; only ages are told by it."""
    return time.time_ns() // 1000


def moment(at: int) -> datetime | None:
    """The moment in UTC; None for not yet or never."""
    return _EPOCH + timedelta(microseconds=at) if at else None


def iso(at: int) -> str | None:
    """The moment for programs."""
    known = moment(at)
    return None if known is None else known.isoformat()


def length(span: int) -> str:
    """How long it is, in its largest whole unit: `3 min`."""
    span = max(span, 0)
    for name, size in _UNITS:
        if span >= size:
            return f"{span // size} {name}"
    return f"{span // _SECOND} s"


def brief(span: int) -> str:
    """How long it took, as fine as it was short: `7 ms`, `1.2 s`, `3 min`."""
    if span < _SECOND:
        return f"{max(span, 0) // 1000} ms"
    return f"{span / _SECOND:.1f} s" if span < _UNITS[-1][1] else length(span)


def beside(at: int, present: int) -> str:
    """Where the moment lies: `3 min ago`, `in 3 min`."""
    return f"in {length(at - present)}" if at > present else f"{length(present - at)} ago"


def exactly(at: int) -> str:
    """The moment for people, to the millisecond."""
    known = moment(at)
    return f"{known:%Y-%m-%d %H:%M:%S}.{at // 1000 % 1000:03d} UTC" if known else "never"
