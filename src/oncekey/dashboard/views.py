"""Prepare records for the templates. Pure functions without I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct

from oncekey.core.audit import AuditEntry
from oncekey.core.key import stored_key
from oncekey.core.record import Record
from oncekey.dashboard.text import as_json, of_bytes
from oncekey.errors import UnreadableError
from oncekey.inspection.actions import state_of
from oncekey.inspection.text import (
    SECOND,
    brief,
    done_by_hand,
    length,
    notes_and_steps,
    status_word,
)
from oncekey.inspection.timeline import Moment, timeline
from oncekey.messages.dead_letters import DeadMessage
from oncekey.outbox import DeadLetter, Waiting
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
    now: int
    """The time of the store."""

    @property
    def query(self) -> str:
        """The query string of its page."""
        return query_of(self.record)

    @property
    def name(self) -> str:
        """Its scope and key as one text."""
        return stored_key(self.record.scope, self.record.key)

    @property
    def state(self) -> str:
        """What changes with the record: whoever decides about it has seen it in this state."""
        return state_of(self.record)

    @property
    def word(self) -> str:
        """Its status as people see it."""
        return status_word(self.record, self.now)

    @property
    def tone(self) -> str:
        """The colour of its status."""
        return tone_of(self.record, self.now)


class Order(Struct, frozen=True):
    """A column that the list can be sorted by: its query string and what `aria-sort` says."""

    query: str
    now: str


ORDERS: Final[dict[str, Callable[[RecordRow], Any]]] = {
    "status": lambda row: row.word,
    "key": lambda row: (row.record.scope or "", row.record.key),
    "label": lambda row: row.record.label,
    "attempt": lambda row: row.record.attempt,
    "created": lambda row: row.record.created,
    "expires": lambda row: row.record.expires or math.inf,
    "size": lambda row: -1 if row.size is None else row.size,
}
"""What the list can be sorted by."""


def sorted_rows(page: RecordPage, sort: str) -> list[RecordRow]:
    """Return the records of a page in this order; with a minus before its name, descending."""
    order = ORDERS[sort.removeprefix("-")]
    return sorted(rows(page), key=order, reverse=sort.startswith("-"))


def orders(sort: str, asked: dict[str, str]) -> dict[str, Order]:
    """Return for each column how to sort by it; for the one that is sorted by, the other way."""
    made = {}
    for name in ORDERS:
        to = f"-{name}" if sort == name else name
        now = {name: "ascending", f"-{name}": "descending"}.get(sort, "none")
        made[name] = Order(urlencode({**asked, "sort": to}), now)
    return made


class DeadLetterRow(Struct, frozen=True, kw_only=True):
    """A message that failed for good, wherever it was to go: the list knows no more than this."""

    box: str
    """Whose it is: the consumer of an inbox, or the destination of an outbox."""
    key: str
    kind: str
    attempts: int
    error: str
    first_seen: int
    died: int
    token: int
    dead: bool
    """Whether it is still dead; it may have been freed since."""
    kept: bool
    """Whether the message itself is kept."""
    unknown: bool = False
    """Whether the target may have it all the same."""
    page: str = ""
    """The address of its page, if it has one."""


def dead_letter_row(letter: DeadMessage) -> DeadLetterRow:
    """Return the dead letter of an inbox as a row."""
    return DeadLetterRow(
        box=letter.consumer,
        key=letter.key,
        kind=letter.message_type,
        attempts=letter.attempts,
        error=letter.error,
        first_seen=letter.first_seen,
        died=letter.died,
        token=letter.token,
        dead=letter.dead,
        kept=letter.letter is not None,
    )


def outbox_letter_row(letter: DeadLetter) -> DeadLetterRow:
    """Return the dead letter of an outbox as a row."""
    message = letter.message
    return DeadLetterRow(
        box=message.to,
        key=message.id,
        kind=message.type,
        attempts=message.tries,
        error=letter.error,
        first_seen=round(letter.created * SECOND),
        died=round(letter.died * SECOND),
        token=message.token,
        dead=True,
        kept=True,
        unknown=letter.unknown,
        page=f"/outbox/letter?{urlencode({'id': message.id})}",
    )


class WaitingRow(Struct, frozen=True):
    """A message that is not sent yet."""

    message: Waiting
    created: int


def waiting_row(message: Waiting) -> WaitingRow:
    """Return the message as a row."""
    return WaitingRow(message, round(message.created * SECOND))


_LARGEST_EDITED: Final = 64 * 1024


def body_of(letter: DeadLetter) -> str | None:
    """Return the body as text that a form can hold, or None if it is no text or too large."""
    if len(letter.message.body) > _LARGEST_EDITED:
        return None
    try:
        text = letter.message.body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or "\r" in text else text


def life_of_letter(
    letter: DeadLetter, by_hand: Iterable[AuditEntry], *, show: bool
) -> list[LifeEntry]:
    """Return what happened to a dead letter of an outbox, in order of time."""
    tries = letter.message.tries
    last = f"Try {tries} failed, and it was the last" if tries > 1 else "The only try failed"
    deeds = [LifeEntry(one.at, done_by_hand(one).capitalize()) for one in by_hand]
    entries = [
        LifeEntry(round(letter.created * SECOND), "Put and committed"),
        LifeEntry(round(letter.died * SECOND), last, "failed", letter.error if show else ""),
        *deeds,
    ]
    return sorted(entries, key=lambda entry: entry.at)


# The end of a reference as the OpenTelemetry observer writes it, which is an extra.
_TRACE: Final = re.compile(r"(?:^| )00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}$")


def trace_of(record: Record, url: str | None) -> str:
    """Return the address of the trace of the last attempt; empty if it is not known."""
    found = _TRACE.search(record.reference)
    return "" if url is None or found is None else url.replace("{trace}", found[1])


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
    return [RecordRow(*pair, page.now) for pair in zip(page.records, page.sizes, strict=True)]


def query_of(record: Record) -> str:
    """Return the query string of the page of the record."""
    return urlencode({"at": stored_key(record.scope, record.key)})


def tone_of(record: Record, present: int) -> str:
    """Return the colour for its status, or `unknown` for a status of a newer release."""
    return status_word(record, present) if record.status in STATUSES else "unknown"


def life(record: Record, present: int, by_hand: Iterable[AuditEntry] = ()) -> list[LifeEntry]:
    """Return what happened and what will happen to the record, in order of time.

    `by_hand` is what people did to it.
    """
    moments = list(timeline(record, apart=SECOND))
    again = any(kind == "started" for kind, _ in moments)
    entries = [_entry(record, one, present, again=again) for one in moments]
    for deed in by_hand:
        words = done_by_hand(deed)
        entries.append(LifeEntry(deed.at, f"{words[0].upper()}{words[1:]}"))
    return sorted((one for one in entries if one is not None), key=lambda entry: entry.at)


def _entry(record: Record, moment: Moment, present: int, *, again: bool) -> LifeEntry | None:  # noqa: PLR0911 - one for each kind
    """Return the words for a moment, or None if the page shows it elsewhere."""
    kind, at = moment
    number = record.attempt
    match kind:
        case "claimed":
            return LifeEntry(at, _claimed(number, again=again))
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
            return _ended(record, at, present)
        case "expires":
            return LifeEntry(at, "Forgotten by itself", "future")


def _claimed(number: int, *, again: bool) -> str:
    if again:
        return "Claimed for the first time"
    # Whoever lets it run again gives it all its attempts again: then there was none yet.
    return f"Claimed, attempt {number} started" if number else "Claimed"


def _ended(record: Record, at: int, present: int) -> LifeEntry | None:
    title = _ENDED.get(record.status, "Ended")
    if not record.uncertain:
        return LifeEntry(at, title, tone_of(record, present), _after(record, at))
    if record.status == "held" and at - record.finished <= SECOND:
        return None  # it was held as soon as it ended, and that entry is already there
    return LifeEntry(at, title, tone_of(record, present))


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
