"""List what happened to one record and when, as far as the record itself tells it.

The command line and the dashboard get the same moments and put them into their own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from oncekey.core.record import Record

Kind = Literal["claimed", "unclear", "started", "noted", "renewed", "lease", "ended", "expires"]


class Moment(NamedTuple):
    """One event in the life of a record.

    claimed: the first claim. unclear: an attempt ended without a definite outcome. started: the
    last attempt began, if that was not at the first claim. noted: it has notes or steps. renewed: a
    running attempt renewed its lease, or noted something. lease: the end of the lease of a running
    attempt. ended: the record got its present status. expires: the record expires.
    """

    kind: Kind
    at: int
    """The time in microseconds; 0 for notes, which have no time of their own."""


def timeline(record: Record, *, apart: int = 0) -> Iterator[Moment]:
    """Yield the moments from the first claim to the expiry of the record.

    Leave out a start or a renewal that came no more than `apart` microseconds after the moment
    before it, because a page that prints seconds would show the same second twice.
    """
    yield Moment("claimed", record.created)
    unclear = record.uncertain and record.finished > 0
    earlier = unclear and record.finished <= record.started
    if earlier:  # an attempt before the last one
        yield Moment("unclear", record.finished)
    if record.attempt > 1 or record.started - record.created > apart:
        yield Moment("started", record.started)
    if record.noted:
        yield Moment("noted", 0)
    if unclear and not earlier:
        yield Moment("unclear", record.finished)
    if record.status != "running":
        at = record.updated if record.uncertain else record.finished or record.updated
        yield Moment("ended", at)
    else:
        if record.updated - record.started > apart:
            yield Moment("renewed", record.updated)
        yield Moment("lease", record.lease_end)
    if record.expires:
        yield Moment("expires", record.expires)
