"""Prepare records for the templates. Pure functions without I/O."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from msgspec import Struct

from oncekey.core.key import stored_key
from oncekey.core.record import Record
from oncekey.dashboard.text import as_json, of_bytes
from oncekey.errors import UnreadableError
from oncekey.inspection.text import SECOND, brief, length, notes_and_steps
from oncekey.inspection.timeline import Moment, timeline
from oncekey.stores.browse import STATUSES, RecordPage

_ENDED: Final = {
    "completed": "Completed",
    "failed": "Failed, and the failure is kept",
    "released": "Released: the key is free",
    "held": "Held until somebody says how it ended",
}
_BRIEF: Final = 1000
"""The least duration that is shown, in microseconds."""


class RecordRow(Struct, frozen=True):
    """A record in a list."""

    record: Record
    size: int | None

    @property
    def query(self) -> str:
        """The query string of its page."""
        return query_of(self.record)

    @property
    def name(self) -> str:
        """Its scope and key as one text."""
        return stored_key(self.record.scope, self.record.key)

    @property
    def tone(self) -> str:
        """The colour of its status."""
        return tone_of(self.record)


class LifeEntry(Struct, frozen=True):
    """One event in the life of a record, in words."""

    at: int
    title: str
    tone: str = "plain"
    more: str = ""


class Fact(Struct, frozen=True):
    """The name of a note, and its value as text."""

    name: str
    value: str


def rows(page: RecordPage) -> list[RecordRow]:
    """Return the records of a page as rows."""
    return [RecordRow(*pair) for pair in zip(page.records, page.sizes, strict=True)]


def query_of(record: Record) -> str:
    """Return the query string of the page of the record."""
    return urlencode({"at": stored_key(record.scope, record.key)})


def tone_of(record: Record) -> str:
    """Return the colour for its status, or `unknown` for a status of a newer release."""
    return record.status if record.status in STATUSES else "unknown"


def life(record: Record, present: int) -> list[LifeEntry]:
    """Return what happened and what will happen to the record, in order of time."""
    moments = list(timeline(record, apart=SECOND))
    again = any(kind == "started" for kind, _ in moments)
    entries = (_entry(record, one, present, again=again) for one in moments)
    return sorted((one for one in entries if one is not None), key=lambda entry: entry.at)


def _entry(record: Record, moment: Moment, present: int, *, again: bool) -> LifeEntry | None:  # noqa: PLR0911 - one for each kind
    """Return the words for a moment, or None if the page shows it elsewhere."""
    kind, at = moment
    number = record.attempt
    match kind:
        case "claimed":
            first = "Claimed for the first time" if again else f"Claimed, attempt {number} started"
            return LifeEntry(at, first)
        case "started":
            earlier = f"{number - 1} before it" if number > 1 else ""
            return LifeEntry(at, f"Attempt {number} started", more=earlier)
        case "noted":  # the page shows the notes separately
            return None
        case "unclear":
            more = _after(record, at)
            return LifeEntry(at, "Ended without a definite outcome", "held", more)
        case "renewed":
            return LifeEntry(at, "Renewed its lease or noted something", "running")
        case "lease":
            if at > present:
                return LifeEntry(at, "Lease ends, unless it is renewed", "future")
            return LifeEntry(at, "Lease ended, and nobody renewed it", "held")
        case "ended":
            return _ended(record, at)
        case "expires":
            return LifeEntry(at, "Forgotten by itself", "future")


def _ended(record: Record, at: int) -> LifeEntry | None:
    title = _ENDED.get(record.status, "Ended")
    if not record.uncertain:
        return LifeEntry(at, title, tone_of(record), _after(record, at))
    if record.status == "held" and at - record.finished <= SECOND:
        return None  # it was held as soon as it ended, and that entry is already there
    return LifeEntry(at, title, tone_of(record))


def _after(record: Record, end: int) -> str:
    took = end - record.started
    if took < _BRIEF:
        return ""
    return f"after {brief(took) if took < SECOND else length(took)}"


def noted(record: Record) -> tuple[list[Fact], list[str], str]:
    """Return the notes, the steps, and an error message if they cannot be read."""
    notes, steps, unreadable = notes_and_steps(record)
    return [Fact(name, as_json(value)) for name, value in notes.items()], list(steps), unreadable


def result_of(record: Record) -> str:
    """Return the kept result as text, or why it cannot be read."""
    try:
        return as_json(record.value)
    except UnreadableError as error:
        return str(error)


def result_size(record: Record) -> str:
    """Return how large the kept result is; empty if none is kept."""
    return "" if record.result is None else of_bytes(len(record.result))
