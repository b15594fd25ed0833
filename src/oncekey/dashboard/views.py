"""A record as a page shows it. No store, no I/O."""

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
"""What took less is not worth a word."""


class RecordRow(Struct, frozen=True):
    """A record in a list."""

    record: Record
    size: int | None

    @property
    def query(self) -> str:
        """How its page is asked for."""
        return query_of(self.record)

    @property
    def tone(self) -> str:
        """The colour of its status."""
        return tone_of(self.record)


class LifeEntry(Struct, frozen=True):
    """One thing in the life of a record, in words."""

    at: int
    title: str
    tone: str = "plain"
    more: str = ""


class Fact(Struct, frozen=True):
    """Something that was kept: its name and its value as text."""

    name: str
    value: str


def rows(page: RecordPage) -> list[RecordRow]:
    """The records of a page."""
    return [RecordRow(*pair) for pair in zip(page.records, page.sizes, strict=True)]


def query_of(record: Record) -> str:
    """How the page of the record is asked for."""
    return urlencode({"at": stored_key(record.scope, record.key)})


def tone_of(record: Record) -> str:
    """The colour of a status; one of a newer release has none of its own."""
    return record.status if record.status in STATUSES else "unknown"


def life(record: Record, present: int) -> list[LifeEntry]:
    """Return what happened, and what is going to, in its order."""
    moments = list(timeline(record, apart=SECOND))
    again = any(kind == "started" for kind, _ in moments)
    entries = (_entry(record, one, present, again=again) for one in moments)
    return sorted((one for one in entries if one is not None), key=lambda entry: entry.at)


def _entry(record: Record, moment: Moment, present: int, *, again: bool) -> LifeEntry | None:  # noqa: PLR0911 - one for each kind
    """Return the words for a moment; None where the page tells it elsewhere."""
    kind, at = moment
    number = record.attempt
    match kind:
        case "claimed":
            first = "Claimed for the first time" if again else f"Claimed, attempt {number} started"
            return LifeEntry(at, first)
        case "started":
            earlier = f"{number - 1} before it" if number > 1 else ""
            return LifeEntry(at, f"Attempt {number} started", more=earlier)
        case "noted":  # the notes have a place of their own
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
        return None  # it was held as soon as it ended, which is told already
    return LifeEntry(at, title, tone_of(record))


def _after(record: Record, end: int) -> str:
    took = end - record.started
    if took < _BRIEF:
        return ""
    return f"after {brief(took) if took < SECOND else length(took)}"


def noted(record: Record) -> tuple[list[Fact], list[str], str]:
    """The notes, the steps, and why they cannot be read where they cannot."""
    notes, steps, unreadable = notes_and_steps(record)
    return [Fact(name, as_json(value)) for name, value in notes.items()], list(steps), unreadable


def result_of(record: Record) -> str:
    """The kept result as text."""
    try:
        return as_json(record.value)
    except UnreadableError as error:
        return str(error)


def result_size(record: Record) -> str:
    """How large the kept result is; empty when none is kept."""
    return "" if record.result is None else of_bytes(len(record.result))
