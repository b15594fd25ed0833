"""Charts of the calls over time, as the overview shows them. Pure functions without I/O."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oncekey.dashboard.text import number
from oncekey.stores.activity import RINGS, Activity, Slot

WIDTH: Final = 600
HEIGHT: Final = 90
_GAP: Final = 0.2
"""The part of its width that is empty beside a bar."""
_LEAST: Final = 2.0
"""The least height of a bar, so that one call among thousands can still be seen."""

SPANS: Final = {"hour": RINGS[0], "day": RINGS[1], "week": RINGS[2]}
_PER: Final = {"hour": "minute", "day": "10 minutes", "week": "hour"}
KINDS: Final = (
    ("new", "New calls", "running"),
    ("duplicates", "Duplicates", "accent"),
    ("held", "Held calls", "held"),
    ("errors", "Store errors", "failed"),
)
"""The name, the title and the colour of each chart, in the order of `Slot.counts`."""


class Bar(Struct, frozen=True):
    """One bar, with the begin of its slot in microseconds."""

    x: float
    y: float
    width: float
    height: float
    at: int
    count: int


class Chart(Struct, frozen=True):
    """One kind of calls over time."""

    name: str
    title: str
    tone: str
    total: str
    said: str
    """The chart in a sentence, for those who do not see it."""
    most: str
    """The highest number of one slot, and what a slot is."""
    bars: list[Bar]


class Charts(Struct, frozen=True):
    """All charts of one span, and when it begins."""

    span: str
    since: int
    charts: list[Chart]
    quiet: bool
    """Whether nothing was counted in the whole span."""


def charts(activity: Activity, span: str) -> Charts:
    """Return the charts of the last hour, day or week."""
    slots = activity.series(SPANS[span])
    made = [_chart(kind, slots, span) for kind in range(len(KINDS))]
    quiet = not any(any(slot.counts) for slot in slots)
    return Charts(span, slots[0].at, made, quiet)


def _chart(kind: int, slots: list[Slot], span: str) -> Chart:
    name, title, tone = KINDS[kind]
    counts = [slot.counts[kind] for slot in slots]
    total, highest = sum(counts), max(counts)
    step = WIDTH / len(slots)
    bars = []
    for place, (slot, count) in enumerate(zip(slots, counts, strict=True)):
        if count:
            height = max(_LEAST, HEIGHT * count / highest)
            x, y = round(place * step, 1), round(HEIGHT - height, 1)
            bars.append(Bar(x, y, round(step * (1 - _GAP), 1), round(height, 1), slot.at, count))
    most = f"at most {number(highest)} in {_a(_PER[span])}" if total else ""
    said = f"{title} in the last {span}: {number(total)}" + (f", {most}" if most else "")
    return Chart(name, title, tone, number(total), said, most, bars)


def _a(slot: str) -> str:
    return slot if slot[0].isdigit() else f"{'an' if slot == 'hour' else 'a'} {slot}"
