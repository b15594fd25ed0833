"""The cursor of a reader in a job's log, and the check whether it can go on from there.

A log belongs to an epoch, and its events are numbered 1, 2, 3, ... by their offset. After a loss a
server may give an offset a second time, in the same epoch. The mark, a few random bytes of each
event, distinguishes the two. A reader that cannot go on exactly is told so: there is never a silent
gap.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

_FORM: Final = re.compile(r"([0-9a-f]{1,32})\.(0|[1-9][0-9]{0,12})\.([0-9a-f]{1,32}|-)")

UNMARKED: Final = "-"
"""The mark of a place without an event, which is not compared."""

Reason = Literal["foreign", "epoch", "mark", "trimmed"]


class Cursor(NamedTuple):
    """The event that a reader saw last. Its text is the id that a client gets."""

    epoch: str
    offset: int
    mark: str = UNMARKED

    def __str__(self) -> str:
        return f"{self.epoch}.{self.offset}.{self.mark}"


START: Final = Cursor("0", 0)
"""The place before the first event of whatever log there will be. No epoch is called 0."""


class Resync(NamedTuple):
    """The reader's place is not in the log any more: it must drop what it has.

    `foreign`: the cursor is none of ours. `epoch`: the log was lost or ran out, and perhaps another
    was begun. `mark`: a server lost the newest events and gave their offsets to others. `trimmed`:
    the log has grown past the place.
    What follows is the log from its oldest event on.
    """

    reason: Reason


class View(NamedTuple):
    """The state of a log, and of one place in it."""

    epoch: str | None
    """The epoch, or None if there is no log."""
    first: int
    """The offset of the oldest event that is left; one past the last when none is."""
    last: int
    """The offset of the newest event; 0 when there was none."""
    mark: str | None
    """The mark of the event at the place, or None if the event is not there."""
    gone: int | None = -1
    """The greatest seq of an event that was trimmed, -1 if none was, or None if nobody knows."""


def parse(text: str) -> Cursor | None:
    """Return the cursor for its text, or None if the text is none of ours."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else Cursor(found[1], int(found[2]), found[3])


def judge(cursor: Cursor | None, view: View) -> Reason | None:
    """Return why a reader cannot go on from the cursor, or None if it can.

    It can go on if every event after the cursor is in the log; without a cursor, every event.
    """
    if cursor is None:
        return "trimmed" if view.epoch is not None and view.first > 1 else None
    if cursor.epoch != view.epoch:
        return "epoch"
    if cursor.offset > view.last:
        return "mark"
    if cursor.mark == UNMARKED:
        return "trimmed" if cursor.offset + 1 < view.first else None
    if cursor.offset < view.first:
        return "trimmed"
    return None if cursor.mark == view.mark else "mark"


def beginning(view: View) -> Cursor | None:
    """Return the place before the oldest event that is left, or None if there is no log."""
    return None if view.epoch is None else Cursor(view.epoch, view.first - 1)
