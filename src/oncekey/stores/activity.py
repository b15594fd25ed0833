"""How many calls there were over time, and what became of them: small counts for the charts.

Every process adds what it has counted every few seconds. A store keeps the sums in three rings: a
slot for each minute of the last hour, for each ten minutes of the last day, and for each hour of
the last week. A slot is used again after one round, so there are never more than 372 of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

_SECOND: Final = 1_000_000

Counts = tuple[int, int, int, int]
"""New calls, duplicates, calls that were held, and errors of the store."""


class Ring(NamedTuple):
    """The slots of one width. Times are microseconds."""

    width: int
    length: int
    """The number of slots."""
    first: int
    """The number of the first slot, among those of all rings."""

    @property
    def span(self) -> int:
        """How far back the ring reaches."""
        return self.width * self.length


RINGS: Final = (
    Ring(60 * _SECOND, 60, 0),
    Ring(600 * _SECOND, 144, 60),
    Ring(3600 * _SECOND, 168, 204),
)


class Slot(Struct, frozen=True):
    """The sums of one slot. It begins at `at` and lasts for `width` microseconds."""

    width: int
    at: int
    counts: Counts


class Activity(Struct, frozen=True):
    """What a store has kept, and its time. A slot in which nothing happened may be missing."""

    now: int
    slots: list[Slot]

    def series(self, ring: Ring) -> list[Slot]:
        """Return all slots of a ring up to now, the oldest first, with zeros where nothing was."""
        found = {slot.at: slot for slot in self.slots if slot.width == ring.width}
        last = self.now - self.now % ring.width
        return [
            found.get(at) or Slot(ring.width, at, (0, 0, 0, 0))
            for at in range(last - (ring.length - 1) * ring.width, last + 1, ring.width)
        ]


def places_at(moment: int, now: int) -> list[tuple[int, int, int]]:
    """Return number, width and begin of the slots of a moment, where the ring reaches so far."""
    return [
        (ring.first + moment // ring.width % ring.length, ring.width, moment - moment % ring.width)
        for ring in RINGS
        if now - ring.span < moment - moment % ring.width <= now
    ]


def activity_of(rows: Iterable[tuple[int, int, int, int, int, int]], now: int) -> Activity:
    """Return the rows of width, begin and counts, without slots of an earlier round."""
    spans = {ring.width: ring.span for ring in RINGS}
    return Activity(
        now,
        [
            Slot(width, at, (new, duplicates, held, errors))
            for width, at, new, duplicates, held, errors in rows
            if now - spans[width] < at <= now
        ],
    )
