"""Where a reader of a job's log stands, and whether it can go on from there.

A log belongs to an epoch, and its events are numbered 1, 2, 3, ... by their offset. After a loss a
server may give an offset a second time, in the same epoch; the mark, a few random bytes of each
event, tells the two apart. A reader that cannot go on exactly is told so: never a silent gap.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

_FORM: Final = re.compile(r"([0-9a-f]{1,32})\.(0|[1-9][0-9]{0,12})\.([0-9a-f]{1,32}|-)")

UNMARKED: Final = "-"
"""The mark of a place where no event is, which is not compared."""

Reason = Literal["foreign", "epoch", "mark", "trimmed", "seq", "slow"]


class Cursor(NamedTuple):
    """The event that a reader saw last; its text is the id that a client gets."""

    epoch: str
    offset: int
    mark: str = UNMARKED

    def __str__(self) -> str:
        return f"{self.epoch}.{self.offset}.{self.mark}"


class Resync(NamedTuple):
    """The reader's place is not in the log any more: what it has is to be thrown away.

    `foreign`: the cursor is none of ours. `epoch`: the log was lost or ran out, and perhaps another
    was begun. `mark`: a server lost the newest events and gave their offsets to others. `trimmed`:
    the log has grown past the place. `seq`: no single event has that number. `slow`: a client did
    not take what waited for it; its connection ends here.
    What follows is the log from its first event that is left.
    """

    reason: Reason


class View(NamedTuple):
    """What a log says about itself, and about one place in it."""

    epoch: str | None
    """None: there is no log."""
    first: int
    """The offset of the oldest event that is left; one past the last when none is."""
    last: int
    """The offset of the newest event; 0 when there was none."""
    mark: str | None
    """The mark of the event at the place, if it is there."""


def parse(text: str) -> Cursor | None:
    """The cursor that the text writes; None when it is none of ours."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else Cursor(found[1], int(found[2]), found[3])


def judge(cursor: Cursor | None, view: View) -> Reason | None:
    """None when every event after the cursor is in the log; without a cursor: every event."""
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
    """The place before the first event that is left; None where there is no log."""
    return None if view.epoch is None else Cursor(view.epoch, view.first - 1)
