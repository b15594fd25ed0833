"""The pictures of docs/architecture.md: the layers of the package, and two calls on their way.

`python -m bench.walk --write` draws them. The layers come from the contract in pyproject.toml, the
ways from what was traced; only what each module is for, in a few words, is written down here. Each
picture brings its own background, light or dark as the reader's system is.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
IMAGES: Final = ROOT / "docs" / "images"
YOURS: Final = "your code"

PURPOSE: Final = {
    "django": "the same records in Django's admin, its migrations and manage.py",
    "cli": "the command oncekey: ls, show, resolve, purge, doctor",
    "dashboard": "the same records in a browser",
    "exporter": "what is held, for Prometheus",
    "inspection": "records for people: list, describe, change; both of the above stand on it",
    "http": "middlewares and a client",
    "jobs": "Celery, Dramatiq, RQ, Taskiq",
    "messages": "the inbox of a consumer",
    "outbox": "messages sent after the commit",
    "events": "progress of jobs, to browsers",
    "testing": "chaos, clock, conformance",
    "once": "Once: what users make, and decorate with",
    "functions": "a protected function: arguments, key and options",
    "records": "get, scan, forget, resolve, purge",
    "markers": "seen keys and kept results",
    "attempt": "what your code sees of its call",
    "engine": "the life of a call: claim, wait, run, renew, settle, recover",
    "doctor": "finds settings that lose records",
    "stores": "memory, SQLite, Redis, PostgreSQL, MariaDB",
    "observe": "logs, metrics and traces",
    "core": "every rule, pure: no I/O, no clock",
    "policy": "options and times",
    "compat": "forks, event loops",
    "extras": "optional packages",
    "errors": "what users catch",
}

PHASES: Final = {
    "prepare": "",
    "claim": "Engine.enter",
    "run": "BaseRun.__init__",
    "settle": "BaseRun.settlement",
    "leave": "BaseRun.settled",
}
"""The parts of a call, and the function with which each begins, in both colours."""


class Step(NamedTuple):
    """One function that was called."""

    file: str
    """Where it is, below the package; or `YOURS`."""
    function: str
    asks: bool = False
    """It was called before, and now asks the store."""


class Picture(NamedTuple):
    """One of the calls that are drawn."""

    name: str
    title: str
    yours: str
    store: str


PICTURES: Final = {
    "sync function, SQLite": Picture(
        "function",
        "A function with a new key, on SQLite",
        "your function",
        "SQLite runs a statement",
    ),
    "ASGI request, Redis": Picture(
        "request",
        "A request with a new key, on Redis",
        "your application",
        "Redis is sent a command",
    ),
}

WIDTH: Final = 820
_EDGE: Final = 20
_RIGHT: Final = WIDTH - _EDGE
_STYLE: Final = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif; fill: #1d2939 }
.head { font-size: 17px; font-weight: 600 }
.name { font-weight: 600 }
.phase { font-size: 12px; font-weight: 600; text-anchor: middle }
.dim { fill: #475467; font-size: 12px }
.file { font: 11px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.number { font-size: 11px; font-weight: 600; fill: #ffffff; text-anchor: middle }
.page { fill: #fbfcfe; stroke: #d0d5dd }
.box { fill: #ffffff; stroke: #d0d5dd }
.way { stroke: #667085; fill: none }
.row { stroke: #98a2b3; stroke-opacity: 0.25 }
.edge { stroke: #98a2b3; stroke-dasharray: 3 3 }
.ask { stroke: #1d2939; stroke-dasharray: 2 2 }
.ink { fill: #1d2939 }
.tip { fill: #667085 }
.band { fill-opacity: 0.09 }
.layer1 { fill: #7a5af5 }
.layer2 { fill: #a843c4 }
.layer3 { fill: #2970d6 }
.layer4 { fill: #0b7f8f }
.layer5 { fill: #2c8048 }
.layer6 { fill: #b8560b }
.layer7 { fill: #c4353f }
.layer8 { fill: #56657d }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7ec }
  .dim { fill: #a3acba }
  .number { fill: #14181f }
  .page { fill: #14181f; stroke: #344054 }
  .box { fill: #1c222c; stroke: #3b4657 }
  .way { stroke: #98a2b3 }
  .edge { stroke: #667085 }
  .ask { stroke: #f2f4f7 }
  .ink { fill: #f2f4f7 }
  .tip { fill: #98a2b3 }
  .band { fill-opacity: 0.14 }
  .layer1 { fill: #a08cff }
  .layer2 { fill: #d07ee6 }
  .layer3 { fill: #64a0f7 }
  .layer4 { fill: #35b8c8 }
  .layer5 { fill: #57bb7a }
  .layer6 { fill: #ea9045 }
  .layer7 { fill: #f2777c }
  .layer8 { fill: #94a3bb }
}"""


def layers() -> list[list[str]]:
    """Return the modules of each layer, the uppermost first, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [found] = [one["layers"] for one in contracts if one["id"] == "layers"]
    return [re.findall(r"\w+", layer) for layer in found]


def path_of(name: str) -> Path:
    """Return the file of a picture."""
    return IMAGES / f"architecture-{name}.svg"


# The layers

_LAYER_TOP: Final = 72
_LAYER_GAP: Final = 12
_BOX_LEFT: Final = 54
_BOX_RIGHT: Final = _RIGHT - 22
_GAP: Final = 8
_LINE: Final = 16
_LETTER: Final = 6.2
"""How wide a letter of the purposes is, on average."""


def draw_layers() -> str:
    """Draw one row for each layer, with a box for each module."""
    title = "The layers of oncekey"
    says = "A module imports from its own row and from the rows below it, never from one above."
    parts = [*_words(_EDGE, 32, title, "head"), *_words(_EDGE, 54, says, "dim")]
    top, rows = _LAYER_TOP, layers()
    for number, names in enumerate(rows, 1):
        wide = (_BOX_RIGHT - _BOX_LEFT - _GAP * (len(names) - 1)) / len(names)
        texts = {name: textwrap.wrap(PURPOSE[name], int((wide - 22) / _LETTER)) for name in names}
        height = 34 + _LINE * max(map(len, texts.values()))
        parts += _badge(_EDGE + 10, top + height / 2, number)
        for place, (name, lines) in enumerate(texts.items()):
            left = _BOX_LEFT + place * (wide + _GAP)
            parts.append(_rect("box", left, top, wide, height, rx=6))
            parts.append(_rect(f"layer{number}", left, top, 4, height, rx=2))
            parts += _words(left + 14, top + 22, name, "name")
            for line, words in enumerate(lines):
                parts += _words(left + 14, top + 40 + _LINE * line, words, "dim")
        top += height + _LAYER_GAP
    x, end = _RIGHT - 4, top - _LAYER_GAP - 10
    parts.append(f'<path class="way" d="M{x} {_LAYER_TOP} V{end}"/>')
    parts.append(f'<path class="tip" d="M{x - 5} {end} h10 l-5 10 z"/>')
    told = "; ".join(f"{number}: {', '.join(names)}" for number, names in enumerate(rows, 1))
    return _svg(title, f"{says} From the top, {told}.", top + _LAYER_GAP, parts)


# The way of a call

_WALK_TOP: Final = 96
_ROW: Final = 18
_SPACE: Final = 8
_LABEL: Final = 46
_PLOT: Final = 272
_PLOT_RIGHT: Final = _RIGHT - 12
_YOURS_WIDE: Final = 4
"""How many calls long the bar of the user's code is."""


class Stay(NamedTuple):
    """Calls in one file, one after the other, and from where to where they are drawn."""

    file: str
    begin: float
    end: float


def draw_walk(picture: Picture, steps: Sequence[Step]) -> str:
    """Draw a row for each file and a bar for each stay in it, in the order of the calls."""
    weights = [_YOURS_WIDE if step.file == YOURS else 1 for step in steps]
    unit = (_PLOT_RIGHT - _PLOT) / sum(weights)
    begins = [_PLOT + unit * sum(weights[:place]) for place in range(len(weights) + 1)]
    rows, bands, bottom = _rows(steps)
    phases = _phases(steps)
    says = "Each bar is a stay in one file; the longer it is, the more functions were called there."
    parts = [*_words(_EDGE, 32, picture.title, "head"), *_words(_EDGE, 54, says, "dim")]

    for number, (top, height) in bands.items():
        parts.append(_rect(f"band layer{number}", _EDGE, top, _RIGHT - _EDGE, height, rx=5))
        parts += _badge(_EDGE + 12, top + height / 2, number)
    names = {file: y for file, (y, _) in rows.items() if file != YOURS}
    for name, y in {picture.yours: rows[YOURS][0], **names, picture.store: bottom}.items():
        parts += _words(_LABEL, y + 4, name, "file")
        parts.append(f'<path class="row" d="M{_PLOT} {y} H{_PLOT_RIGHT}"/>')
    for name, (first, last) in phases.items():
        left, right = begins[first], begins[last]
        if first:
            parts.append(f'<path class="edge" d="M{left:.1f} 92 V{bottom + 10}"/>')
        parts += _words((left + right) / 2, 84, name, "phase")

    stays = list(_stays(steps, begins))
    for before, after in pairwise(stays):
        high, low = sorted((rows[before.file][0], rows[after.file][0]))
        parts.append(f'<path class="way" d="M{after.begin:.1f} {high} V{low}"/>')
    for stay in stays:
        y, kind = rows[stay.file]
        parts.append(_rect(kind, stay.begin, y - 5, stay.end - stay.begin, 10, rx=2))
    for begin, step in zip(begins, steps, strict=False):
        if step.asks:
            x = begin + unit / 2
            parts.append(f'<path class="ask" d="M{x:.1f} {rows[step.file][0] + 5} V{bottom - 5}"/>')
            parts.append(f'<path class="ink" d="M{x:.1f} {bottom - 6} l6 6 l-6 6 l-6 -6 z"/>')

    told = "; ".join(
        f"{name}: {', '.join(dict.fromkeys(step.file for step in steps[first:last]))}"
        for name, (first, last) in phases.items()
    )
    return _svg(picture.title, f"The files in the order of the calls. {told}.", bottom + 24, parts)


def _rows(
    steps: Sequence[Step],
) -> tuple[dict[str, tuple[int, str]], dict[int, tuple[int, int]], int]:
    """Return the height and the class of each file, the bands of the layers, and where they end."""
    order = layers()
    files = list(dict.fromkeys(step.file for step in steps if step.file != YOURS))
    rows = {YOURS: (_WALK_TOP + _ROW // 2, "ink")}
    bands: dict[int, tuple[int, int]] = {}
    top = _WALK_TOP + _ROW + _SPACE
    for number, names in enumerate(order, 1):
        here = [file for file in files if file.split("/")[0].removesuffix(".py") in names]
        if here:
            bands[number] = (top, _ROW * len(here) + 4)
        for place, file in enumerate(here):
            rows[file] = (top + 2 + _ROW * place + _ROW // 2, f"layer{number}")
        top += _ROW * len(here) + 4 + _SPACE if here else 0
    return rows, bands, top + _ROW // 2


def _phases(steps: Sequence[Step]) -> dict[str, tuple[int, int]]:
    """Return the first step of each part of the call, and the first step after it."""
    starts: list[int] = []
    for name, function in PHASES.items():
        found = [at for at, step in enumerate(steps) if step.function.endswith(function)]
        if not found:
            msg = f"{function} was not called: PHASES says that {name!r} begins with it"
            raise ValueError(msg)
        starts.append(found[0])
    return dict(zip(PHASES, zip(starts, [*starts[1:], len(steps)], strict=True), strict=True))


def _stays(steps: Sequence[Step], begins: Sequence[float]) -> Iterator[Stay]:
    at = 0
    for file, some in groupby(steps, key=lambda step: step.file):
        first, at = at, at + len(list(some))
        yield Stay(file, begins[first], begins[at])


# What both have


def _svg(title: str, told: str, height: int, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(told)}</desc>",
        f"<style>\n{_STYLE}\n</style>",
        _rect("page", 0.5, 0.5, WIDTH - 1, height - 1, rx=10),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _rect(kind: str, x: float, y: float, wide: float, high: float, *, rx: int) -> str:
    size = f'width="{wide:.1f}" height="{high:g}" rx="{rx}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:g}" {size}/>'


def _badge(x: float, y: float, number: int) -> Iterator[str]:
    yield f'<circle class="layer{number}" cx="{x:g}" cy="{y:g}" r="9"/>'
    yield f'<text class="number" x="{x:g}" y="{y + 4:g}">{number}</text>'


def _words(x: float, y: float, words: str, kind: str) -> Iterator[str]:
    yield f'<text class="{kind}" x="{x:.1f}" y="{y:g}">{escape(words)}</text>'
