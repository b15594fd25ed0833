"""The live numbers and drawings, as the overview and its script show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from oncekey.dashboard.counter import CallCounts
from oncekey.dashboard.queries import StoreView
from oncekey.dashboard.text import number
from oncekey.inspection.text import basis_of, lapsed_among, number_of
from oncekey.stores.browse import STATUSES, RecordCounts

# Paths and widths for SVG, which needs no style and no script for them.

WIDTH: Final = 600
HEIGHT: Final = 100
_TOP: Final = 6
_LEAST: Final = 8.0
"""The least width of a piece of the bar, so that it can still be seen."""


class Piece(Struct, frozen=True):
    """The part of the bar for one status."""

    status: str
    x: float
    width: float


def line(values: Sequence[int], highest: int) -> str:
    """Return the values from left to right, as the `d` of an SVG path."""
    step = WIDTH / max(len(values) - 1, 1)
    room = HEIGHT - _TOP
    points = (
        f"{index * step:.1f} {HEIGHT - room * value / max(highest, 1):.1f}"
        for index, value in enumerate(values)
    )
    return "M" + "L".join(points)


def area(values: Sequence[int], highest: int) -> str:
    """Return the same line, filled down to the bottom."""
    return f"{line(values, highest)}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"


def bar(by_status: Mapping[str, int]) -> list[Piece]:
    """Return a piece for every status. A status that exists is visible, however rare it is."""
    present = {name: by_status.get(name, 0) for name in STATUSES}
    total = sum(present.values())
    if not total:
        return [Piece(name, 0, 0) for name in STATUSES]
    widths = {name: max(_LEAST, WIDTH * n / total) if n else 0.0 for name, n in present.items()}
    scale = WIDTH / sum(widths.values())
    pieces = []
    x = 0.0
    for name, width in widths.items():
        pieces.append(Piece(name, round(x, 1), round(width * scale, 1)))
        x += width * scale
    return pieces


UNKNOWN: Final = "\N{EM DASH}"
_SMALL: Final = 10
_SEPARATOR: Final = "\N{NARROW NO-BREAK SPACE}"


class Figures(Struct):
    """Texts by the name of their element, SVG paths by name, and the pieces of the bar."""

    texts: dict[str, str]
    paths: dict[str, str]
    bar: list[Piece]
    said: str
    """The same in one sentence, for screen readers."""


def figures(look: StoreView, calls: CallCounts | None) -> Figures:
    """Return everything on the overview that changes by itself."""
    counts = look.counts
    told = {
        "total": about(counts),
        "change": _change(look),
        "basis": basis_of(counts, _SEPARATOR),
        "lapsed": lapsed_among(counts),
        **{f"status-{name}": about(counts, name) for name in STATUSES},
    }
    said = f"{told['total']} records, {told['status-held']} held"
    if calls is None or not calls.total:
        return Figures(told, {}, bar(counts.by_status), said)
    told |= {
        "saved": number(calls.duplicates),
        "share": share(calls),
        "rate": rate(calls.per_second),
        "checks": number(calls.total),
        "ran": number(calls.counted.get("new", 0) + calls.counted.get("taken_over", 0)),
        "reused": number(calls.counted.get("reused", 0)),
        "unprotected": number(calls.counted.get("unprotected", 0)),
        "refused": number(calls.counted.get("refused", 0)),
    }
    highest = max(calls.checks)
    paths = {
        "checks-area": area(calls.checks, highest),
        "saved-area": area(calls.saved, highest),
        "saved-line": line(calls.saved, highest),
    }
    said = f"{told['saved']} duplicates saved, {said}"
    return Figures(told, paths, bar(counts.by_status), said)


def about(counts: RecordCounts, status: str | None = None) -> str:
    """Return the number of a status, or of all records; with a word if it is an estimate."""
    return number_of(counts, status, _SEPARATOR)


def share(calls: CallCounts) -> str:
    """Return the share of calls that were duplicates, in percent."""
    part = calls.share
    if part is None:
        return UNKNOWN
    percent = 100 * part
    return f"{percent:.1f} %" if 0 < percent < _SMALL else f"{percent:.0f} %"


def rate(per_second: float) -> str:
    """Return the rate per second, or per minute if it is below one per second."""
    if per_second == 0:
        return "0 /s"
    if per_second < 1:
        return f"{60 * per_second:.0f} /min"
    return f"{per_second:.1f} /s" if per_second < _SMALL else f"{number(per_second)} /s"


def _change(look: StoreView) -> str:
    if not look.counts.exact:
        return "estimates show no change"
    if look.per_minute is None:
        return "change not known yet"
    return "steady" if round(look.per_minute) == 0 else f"{look.per_minute:+,.0f} /min"
