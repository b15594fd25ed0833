"""Write records as text for people: their meaning, names, values, times and durations."""

from __future__ import annotations

import base64
import json
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from oncekey.core.audit import AuditEntry
from oncekey.core.record import FORMAT, Record
from oncekey.errors import UnreadableError
from oncekey.stores.browse import RecordCounts, lapsed

_MEANING: Final = {
    "running": "An attempt is running; a duplicate waits for it, or is told to come back.",
    "completed": "A duplicate gets the result without running.",
    "failed": "A duplicate gets the same failure without running.",
    "released": "The next call runs.",
    "held": "Nobody knows how the last attempt ended. Find out, then say so.",
}


def status_word(record: Record, present: int) -> str:
    """Return the status as people see it, at the store's time `present`.

    A record that is running although its lease is over is "lapsed": its process died, or cannot
    reach the store.
    """
    return "lapsed" if lapsed(record, present) else record.status


def meaning(record: Record, present: int) -> str:
    """Return what the record means for the next call, at the store's time `present`."""
    if record.version > FORMAT:
        return (
            f"A newer release wrote it (format {record.version}); this one shows what it "
            f"understands and changes nothing. Upgrade oncekey here as well."
        )
    if status_word(record, present) == "lapsed":
        return "Its attempt has not renewed its lease; the next call takes over or holds it."
    if record.status == "completed" and record.result is None:
        return "It was done, but its result was not kept; a duplicate hears that."
    if record.status == "released" and record.noted:
        return "The next call runs, and finds what was noted."
    return _MEANING.get(record.status, "Its bytes are not those of a record; see the store itself.")


def notes_and_steps(record: Record) -> tuple[dict[str, Any], tuple[str, ...], str]:
    """Return the notes, the steps, and an error message if they cannot be read."""
    try:
        return record.notes, record.steps, ""
    except UnreadableError as error:
        return {}, (), str(error)


def printable(text: str) -> str:
    """Return the text on one line, with characters that a terminal would obey or hide escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, most: int) -> str:
    """Return the text, cut to `most` characters with a remark on how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]} ... ({len(text) - most} more characters)"


def as_text(value: object, most: int) -> str:
    """Return the value as JSON on one line, shortened, without escaping non-ASCII letters."""
    return shortened(printable(json.dumps(plain(value), ensure_ascii=False)), most)


def plain(value: object) -> Any:
    """Return the value as types that JSON has. Turn everything else into text."""
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


_DONE: Final = {
    "retry": "freed to run again",
    "forget": "forgotten",
    "purge": "purged",
    "import": "imported",
}


def done_by_hand(entry: AuditEntry, *, personal: bool = True) -> str:
    """Return what an entry of the audit trail says; without who and why unless `personal`."""
    done = f"resolved as {entry.became}" if entry.action == "resolve" else _DONE[entry.action]
    if not personal:
        return done
    why = f": {entry.reason}" if entry.reason else ""
    return f"{done} by {entry.by or 'somebody'}{why}"


def number_of(told: RecordCounts, status: str | None = None, separator: str = ",") -> str:
    """Return how many records there are of this status, or of all. Say if that is an estimate.

    A sample in which there is none does not tell that there is none in the store.
    """
    count = told.total if status is None else told.by_status.get(status, 0)
    if told.exact if status is None else told.counted(status):
        words = f"{count:,}"
    elif not count:
        words = "none seen"
    else:
        words = f"at least {count:,}" if told.at_least else f"about {estimate(count):,}"
    return words.replace(",", separator)


def estimate(count: int) -> int:
    """Return the number with two digits that count, so that it does not look exact."""
    return round(count, 2 - len(str(count)))


def lapsed_among(told: RecordCounts) -> str:
    """Return how many of the running records have lapsed: `2 lapsed`. Empty if none was seen."""
    if not told.lapsed:
        return ""
    if told.exact or told.at_least:
        return f"{'' if told.exact else 'at least '}{told.lapsed:,} lapsed"
    return f"about {estimate(told.lapsed):,} lapsed"


def basis_of(told: RecordCounts, separator: str = ",") -> str:
    """Return from how many records the numbers are; empty if all were counted."""
    if told.exact:
        return ""
    looked_at = f"{told.looked_at:,}".replace(",", separator)
    if told.at_least:
        return f"counted among the first {looked_at} records; there are more"
    return f"estimated from {looked_at} records"


SECOND: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = (("d", 86400 * SECOND), ("h", 3600 * SECOND), ("min", 60 * SECOND))


def now() -> int:
    """Return the time of this machine in microseconds. Use it for ages only."""
    return time.time_ns() // 1000


def iso(at: int) -> str:
    """Return the time in ISO 8601, for programs."""
    return _utc(at).isoformat()


def moment(at: int, *, milliseconds: bool = False) -> str:
    """Return the time for people: `2026-01-01 12:00:00 UTC`."""
    fraction = f".{at // 1000 % 1000:03d}" if milliseconds else ""
    return f"{_utc(at):%Y-%m-%d %H:%M:%S}{fraction} UTC"


def _utc(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def length(span: int) -> str:
    """Return the duration in its largest whole unit, seconds at least: `3 min`."""
    span = max(span, 0)
    for name, size in _UNITS:
        if span >= size:
            return f"{span // size} {name}"
    return f"{span // SECOND} s"


def brief(span: int) -> str:
    """Return the duration in a unit that suits it: `7 ms`, `1.2 s`, `3 min`."""
    if span < SECOND:
        return f"{max(span, 0) // 1000} ms"
    return f"{span / SECOND:.1f} s" if span < _UNITS[-1][1] else length(span)


def beside(at: int, present: int) -> str:
    """Return the time relative to `present`: `3 min ago`, `in 3 min`."""
    return f"in {length(at - present)}" if at > present else f"{length(present - at)} ago"
