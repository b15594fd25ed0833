"""Bars for docs/benchmarks.md, drawn from a report: how each ratio stands to its target.

A picture brings its own background, light or dark as the reader's system is, so that it can be
read on any page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from html import escape
from typing import Final, NamedTuple

from bench.report.rows import Report, Row
from bench.report.words import times

WIDTH: Final = 760
_EDGE: Final = 20
_TRACK: Final = 490 - _EDGE
_VALUE: Final = _EDGE + _TRACK + 12
_TARGET: Final = _VALUE + 62
_TOP: Final = 78
_STEP: Final = 44
_FOOT: Final = 38
_FURTHEST: Final = 1000.0
_STYLE: Final = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #1d2939 }
.head { font-size: 17px; font-weight: 600 }
.value { font-weight: 600 }
.dim { fill: #475467; font-size: 12px }
.page { fill: #fbfcfe; stroke: #d0d5dd }
.track { fill: #eaecf0 }
.ok { fill: #12924f }
.missed { fill: #d92d20 }
.free { fill: #4e7fd1 }
.spread { stroke: #1d2939; stroke-width: 1.5 }
.target { stroke: #1d2939; stroke-width: 2.5 }
.one { stroke: #98a2b3; stroke-width: 1.5; stroke-dasharray: 3 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7ec }
  .dim { fill: #a3acba }
  .page { fill: #14181f; stroke: #344054 }
  .track { fill: #29313d }
  .ok { fill: #2fb574 }
  .missed { fill: #f2675d }
  .free { fill: #6c9bea }
  .spread, .target { stroke: #f2f4f7 }
  .one { stroke: #667085 }
}"""
_BOUND: Final = re.compile(r"(?:at least|at most|less than) (\d+(?:\.\d+)?)x")


class Chart(NamedTuple):
    """Which rows it has, by their ids, and what it says about them."""

    name: str
    title: str
    subtitle: str
    rows: tuple[str, ...]
    beside_one: bool = False
    """The bars begin at 1x, on a scale where twice and half are equally far from it."""


CHARTS: Final = (
    Chart(
        "one",
        "One caller",
        "Calls while the raw commands of the driver make one; more is better.",
        (
            "redis-new",
            "redis-duplicate",
            "postgres-new",
            "postgres-duplicate",
            "mysql-new",
            "mysql-duplicate",
            "sqlite-new-one",
            "sqlite-duplicate",
        ),
    ),
    Chart(
        "many",
        "Many callers of one process",
        "Calls while the raw commands of the driver make one; more is better.",
        (
            "redis-new-threads",
            "redis-new-tasks",
            "redis-duplicate-tasks",
            "postgres-new-tasks",
            "mysql-new-tasks",
            "sqlite-new-threads",
            "sqlite-new-tasks",
        ),
    ),
    Chart(
        "cpu",
        "Calls without a round trip",
        "CPU time of a call, as a share of one redis-py GET; less is better.",
        ("memory-new", "memory-duplicate", "memory-cached"),
    ),
    Chart(
        "http",
        "HTTP",
        "Requests while the bare application answers one; more is better.",
        ("http-none", "http-new", "http-duplicate", "http-duplicate-uncached"),
    ),
    Chart(
        "peers",
        "Peers",
        "Calls while the closest peer makes one; to the right of the line is faster than all.",
        ("peers-",),
        beside_one=True,
    ),
    Chart(
        "growth",
        "A new key in a store that fills",
        "The time it takes, as a share of the same with few keys; less is better.",
        ("growth-",),
    ),
    Chart(
        "work",
        "Jobs and messages",
        "The time it takes, as a share of what it is compared with; less is better.",
        ("jobs-enqueue-new", "jobs-enqueue-duplicate", "inbox-atomic"),
    ),
    Chart(
        "events",
        "Events",
        "Time, processor and memory, as a share of the same by hand; less is better.",
        ("events-latency", "events-unwatched", "events-redis-cpu", "events-redis-memory"),
    ),
)


def charts(report: Report) -> dict[str, str]:
    """Pictures by name. A chart none of whose rows was measured is not drawn."""
    drawn = {}
    for chart in CHARTS:
        rows = [row for row in report.rows if row.ratio is not None and named(chart.rows, row)]
        if rows:
            drawn[chart.name] = _draw(chart, rows)
    return drawn


def named(names: tuple[str, ...], row: Row) -> bool:
    """Whether the row is one of those; a name that ends in a hyphen is the beginning of many."""
    return any(row.id.startswith(name) if name.endswith("-") else row.id == name for name in names)


def _draw(chart: Chart, rows: list[Row]) -> str:
    place = _near_one(rows) if chart.beside_one else _from_nothing(rows)
    bottom = _TOP + _STEP * len(rows)
    height = bottom + _FOOT
    one = f"{place(1.0):.1f}"
    size = f'width="{WIDTH}" height="{height}" role="img"'
    told = "; ".join(f"{row.title}: {times(row.ratio.median)}" for row in rows if row.ratio)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" {size}>',
        f"<title>{escape(chart.title)}</title>",
        f"<desc>{escape(told)}</desc>",
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
        _text(_EDGE, 32, chart.title, "head"),
        _text(_EDGE, 54, chart.subtitle, "dim"),
    ]
    for number, row in enumerate(rows):
        parts += _bar(chart, row, _TOP + _STEP * number, place)
    parts += [
        f'<text class="dim" x="{one}" y="{bottom + 6}" text-anchor="middle">1x</text>',
        _text(WIDTH - _EDGE, bottom + 22, _legend(chart), "dim", "end"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _bar(chart: Chart, row: Row, top: int, place: Callable[[float], float]) -> list[str]:
    assert row.ratio is not None
    one = place(1.0)
    start = one if chart.beside_one else _EDGE
    end = place(row.ratio.median)
    left, wide = min(start, end), max(abs(end - start), 1)
    low, high = place(row.ratio.low), place(row.ratio.high)
    kind = {"": "free", "ok": "ok", "MISSED": "missed"}[row.verdict]
    middle, bar = top + 24, 'height="14" rx="3"'
    parts = [
        _text(_EDGE, top + 10, row.title),
        f'<rect class="track" x="{_EDGE}" y="{top + 17}" width="{_TRACK}" {bar}/>',
        f'<rect class="{kind}" x="{left:.1f}" y="{top + 17}" width="{wide:.1f}" {bar}/>',
        f'<line class="one" x1="{one:.1f}" x2="{one:.1f}" y1="{top + 14}" y2="{top + 34}"/>',
        f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>',
        _text(_VALUE, top + 29, times(row.ratio.median), "value"),
    ]
    if chart.beside_one:
        parts.append(_text(WIDTH - _EDGE, top + 10, f"of {row.against}", "dim", "end"))
    bound = _bound(row)
    if bound is not None:
        x = place(bound)
        told = row.target + (", MISSED" if kind == "missed" else "")
        parts.append(
            f'<line class="target" x1="{x:.1f}" x2="{x:.1f}" y1="{top + 14}" y2="{top + 34}"/>'
        )
        parts.append(_text(_TARGET, top + 29, told, "dim"))
    return parts


def _bound(row: Row) -> float | None:
    """The figure of its target."""
    found = _BOUND.match(row.target)
    return None if found is None else float(found[1])


def _from_nothing(rows: list[Row]) -> Callable[[float], float]:
    """A scale that begins with 0 at the left edge and has room for every bar and every target."""
    furthest = max(1.0, *(max(row.ratio[2], _bound(row) or 0) for row in rows if row.ratio))
    return lambda ratio: _EDGE + _TRACK * ratio / (furthest * 1.04)


def _near_one(rows: list[Row]) -> Callable[[float], float]:
    """A scale by powers, with 1 on it. Who is a thousand times faster stands at its end."""
    figures = [min(figure, _FURTHEST) for row in rows if row.ratio for figure in row.ratio[1:]]
    reached = [math.log(figure) for figure in figures]
    low, high = min(*reached, math.log(0.8)), max(*reached, math.log(2))
    room = (high - low) * 1.04
    return lambda ratio: _EDGE + _TRACK * (math.log(min(ratio, _FURTHEST)) - low) / room


def _legend(chart: Chart) -> str:
    scale = "every doubling is as long as the next; " if chart.beside_one else ""
    return f"{scale}bar: median of the rounds; line in it: their middle half; mark: target"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    told = f' class="{kind}"' if kind else ""
    told += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text{told} x="{x}" y="{y}">{escape(words)}</text>'
