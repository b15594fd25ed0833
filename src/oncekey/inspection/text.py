"""How records are written for people."""

from __future__ import annotations

import base64
import json
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from oncekey.core.record import FORMAT, Record

_MEANING: Final = {
    "running": "An attempt is running; a duplicate waits for it, or is told to come back.",
    "completed": "A duplicate gets the result without running.",
    "failed": "A duplicate gets the same failure without running.",
    "released": "The next call runs.",
    "held": "Nobody knows how the last attempt ended. Find out, then say so.",
}


def meaning(record: Record, present: int) -> str:
    """The sentence, judged at the store's time `present`."""
    if record.version > FORMAT:
        return (
            f"A newer release wrote it (format {record.version}); this one shows what it "
            f"understands and changes nothing. Upgrade oncekey here as well."
        )
    if record.status == "running" and record.lease_end <= present:
        return "Its attempt has not renewed its lease; the next call takes over or holds it."
    if record.status == "completed" and record.result is None:
        return "It was done, but its result was not kept; a duplicate hears that."
    if record.status == "released" and record.noted:
        return "The next call runs, and finds what was noted."
    return _MEANING.get(record.status, "Its bytes are not those of a record; see the store itself.")


SHORT: Final = 200
LONG: Final = 2000


def printable(text: str) -> str:
    """The text on one line; what a terminal would obey or hide is written as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} ... ({len(text) - most} more characters)"


def as_text(value: object, most: int) -> str:
    """The value as JSON on one line, for people: shortened, in the letters of its language."""
    return shortened(printable(json.dumps(plain(value), ensure_ascii=False)), most)


def plain(value: object) -> Any:  # noqa: ANN401 - whatever JSON knows
    """The value as JSON can say it; what JSON does not know becomes text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k if isinstance(k, str) else str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime) else repr(value)


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
