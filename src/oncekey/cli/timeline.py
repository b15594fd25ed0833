"""The life of one record, moment by moment, as far as the record itself tells it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oncekey import Record, UnreadableError
from oncekey.cli.text import LONG, SHORT, as_text, printable, shortened
from oncekey.cli.times import brief


class Moment(NamedTuple):
    """What happened, and when in microseconds; 0 for what has no time of its own."""

    at: int
    what: str


def timeline(record: Record, present: int, *, redact: bool = False) -> Iterator[Moment]:
    """The moments, from the first claim to the end of the record."""
    yield Moment(record.created, "first claimed")
    uncertain = _uncertain(record)
    earlier = uncertain is not None and uncertain.at <= record.started
    if uncertain is not None and earlier:  # an attempt before the last one
        yield uncertain
    if record.attempt > 1 or record.started > record.created:
        yield Moment(record.started, f"attempt {record.attempt} started")
    for text in _noted(record, redact=redact):
        yield Moment(0, text)
    if uncertain is not None and not earlier:
        yield uncertain
    yield from _end(record, present, redact=redact)
    if record.expires:
        yield Moment(record.expires, "expires")


def _end(record: Record, present: int, *, redact: bool) -> Iterator[Moment]:
    """How the last attempt ended, or how long it still has."""
    if record.status != "running":
        yield _ended(record, redact=redact)
        return
    if record.updated > record.started:
        yield Moment(record.updated, "lease renewed, or a note written")
    over = record.lease_end <= present
    yield Moment(record.lease_end, "lease over" if over else "lease ends, unless renewed")


def _uncertain(record: Record) -> Moment | None:
    if not record.uncertain or not record.finished:
        return None
    return Moment(record.finished, "ended without a definite outcome")


def _ended(record: Record, *, redact: bool) -> Moment:
    at = record.updated if record.uncertain else record.finished or record.updated
    what = printable(record.status)
    if record.started and not record.uncertain:
        what = f"{what} after {brief(at - record.started)}"
    if record.error and not redact:
        words = printable(record.failure) or "the failure cannot be read"
        what = f"{what}: {shortened(words, LONG)}"
    return Moment(at, what)


def _noted(record: Record, *, redact: bool) -> Iterator[str]:
    try:
        notes, steps = record.notes, record.steps
    except UnreadableError as error:
        yield "the notes cannot be read" if redact else printable(str(error))
        return
    for name, value in notes.items():
        yield f"noted {printable(name)}" + ("" if redact else f" = {as_text(value, SHORT)}")
    for step in steps:
        yield f"step {printable(step)} done"
