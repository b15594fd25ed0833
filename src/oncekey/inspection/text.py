"""How records are written for people: what they mean, their text, their values and their times."""

from __future__ import annotations

import base64
import json
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from oncekey.core.record import FORMAT, Record
from oncekey.errors import UnreadableError

_MEANING: Final = {
    "running": "An attempt is running; a duplicate waits for it, or is told to come back.",
    "completed": "A duplicate gets the result without running.",
    "failed": "A duplicate gets the same failure without running.",
    "released": "The next call runs.",
    "held": "Nobody knows how the last attempt ended. Find out, then say so.",
}


def meaning(record: Record, present: int) -> str:
    """Return what the record means for the next call, at the store's time `present`."""
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


def notes_and_steps(record: Record) -> tuple[dict[str, Any], tuple[str, ...], str]:
    """Return the notes, the steps, and why they cannot be read where they cannot."""
    try:
        return record.notes, record.steps, ""
    except UnreadableError as error:
        return {}, (), str(error)


def printable(text: str) -> str:
    """Return the text on one line, with an escape for what a terminal would obey or hide."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """Return the text, or its beginning and how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} ... ({len(text) - most} more characters)"


def as_text(value: object, most: int) -> str:
    """Return the value as JSON on one line, shortened, in the letters of its language."""
    return shortened(printable(json.dumps(plain(value), ensure_ascii=False)), most)


def plain(value: object) -> Any:
    """Return the value as JSON can say it; what JSON does not know becomes text."""
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


SECOND: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = (("d", 86400 * SECOND), ("h", 3600 * SECOND), ("min", 60 * SECOND))


def now() -> int:
    """Return microseconds by the clock of this machine. Use it for ages only."""
    return time.time_ns() // 1000


def iso(at: int) -> str:
    """Return the moment for programs."""
    return _utc(at).isoformat()


def moment(at: int, *, milliseconds: bool = False) -> str:
    """Return the moment for people: `2026-01-01 12:00:00 UTC`."""
    fraction = f".{at // 1000 % 1000:03d}" if milliseconds else ""
    return f"{_utc(at):%Y-%m-%d %H:%M:%S}{fraction} UTC"


def _utc(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def length(span: int) -> str:
    """Return how long it is in its largest whole unit, seconds at least: `3 min`."""
    span = max(span, 0)
    for name, size in _UNITS:
        if span >= size:
            return f"{span // size} {name}"
    return f"{span // SECOND} s"


def brief(span: int) -> str:
    """Return how long it took, as fine as it was short: `7 ms`, `1.2 s`, `3 min`."""
    if span < SECOND:
        return f"{max(span, 0) // 1000} ms"
    return f"{span / SECOND:.1f} s" if span < _UNITS[-1][1] else length(span)


def beside(at: int, present: int) -> str:
    """Return where the moment lies: `3 min ago`, `in 3 min`."""
    return f"in {length(at - present)}" if at > present else f"{length(present - at)} ago"
