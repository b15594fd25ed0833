"""The numbers that are alive, as the page and the script that keeps it alive show them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from oncekey.dashboard.drawing import Piece, area, bar, line
from oncekey.dashboard.pulse import Beat
from oncekey.dashboard.queries import Tally
from oncekey.dashboard.text import number
from oncekey.stores.browse import STATUSES, RecordCounts

UNKNOWN: Final = "\N{EM DASH}"
_SMALL: Final = 10


class Figures(Struct):
    """Texts by the name of the place where they stand, paths of drawings, and pieces of the bar."""

    texts: dict[str, str]
    paths: dict[str, str]
    bar: list[Piece]
    said: str
    """The same in one sentence, for those who listen."""


def figures(tally: Tally, beat: Beat | None) -> Figures:
    """Everything that changes by itself."""
    counts = tally.counts
    told = {
        "total": about(counts.total, counts),
        "change": _change(tally),
        "basis": basis(counts),
        **{f"status-{name}": about(counts.by_status.get(name, 0), counts) for name in STATUSES},
    }
    said = f"{told['total']} records, {told['status-held']} held"
    if beat is None or not beat.total:
        return Figures(told, {}, bar(counts.by_status), said)
    told |= {
        "saved": number(beat.duplicates),
        "share": share(beat),
        "rate": rate(beat.per_second),
        "checks": number(beat.total),
        "ran": number(beat.counted.get("new", 0) + beat.counted.get("taken_over", 0)),
        "reused": number(beat.counted.get("reused", 0)),
        "unprotected": number(beat.counted.get("unprotected", 0)),
        "refused": number(beat.counted.get("refused", 0)),
    }
    highest = max(beat.checks)
    paths = {
        "checks-area": area(beat.checks, highest),
        "saved-area": area(beat.saved, highest),
        "saved-line": line(beat.saved, highest),
    }
    said = f"{told['saved']} duplicates saved, {said}"
    return Figures(told, paths, bar(counts.by_status), said)


def about(count: int, counts: RecordCounts) -> str:
    """The number, which says so when it is an estimate."""
    return number(count) if counts.exact else f"~\N{NARROW NO-BREAK SPACE}{number(count)}"


def basis(counts: RecordCounts) -> str:
    """Where the numbers come from, when they were not counted one by one."""
    if counts.exact:
        return ""
    return f"estimated from {number(counts.looked_at)} records"


def share(beat: Beat) -> str:
    """Which part of all calls were duplicates."""
    part = beat.share
    if part is None:
        return UNKNOWN
    percent = 100 * part
    return f"{percent:.1f} %" if 0 < percent < _SMALL else f"{percent:.0f} %"


def rate(per_second: float) -> str:
    """So many each second, or each minute where that says more."""
    if per_second == 0:
        return "0 /s"
    if per_second < 1:
        return f"{60 * per_second:.0f} /min"
    return f"{per_second:.1f} /s" if per_second < _SMALL else f"{number(per_second)} /s"


def _change(tally: Tally) -> str:
    if not tally.counts.exact:
        return "change not known: two estimates cannot be compared"
    if tally.per_minute is None:
        return "change not known yet"
    return "steady" if round(tally.per_minute) == 0 else f"{tally.per_minute:+,.0f} /min"
