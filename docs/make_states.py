"""Write docs/states.md and its diagram from the machine's table: `python docs/make_states.py`.

Arrows and their words come from `oncekey.core.machine`; only where things stand is decided here. An
arrow that the table has and the drawing does not, or the other way round, is an error.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final, NamedTuple

from oncekey.core.machine import TABLE, Row

DOCS: Final = Path(__file__).parent
WIDTH, HEIGHT = 1020, 640
BOX: Final = (136, 50)


class Place(NamedTuple):
    """Where the middle of a status stands, and its colours."""

    x: int
    y: int
    fill: str
    edge: str


class Arrow(NamedTuple):
    """The path of an arrow, and where its words stand."""

    path: str
    x: int
    y: int
    anchor: str = "middle"


PLACES: Final = {
    "none": Place(80, 310, "#ffffff", "#98a2b3"),
    "running": Place(280, 310, "#dbeafe", "#2563eb"),
    "released": Place(570, 410, "#f1f5f9", "#64748b"),
    "held": Place(860, 310, "#fef3c7", "#d97706"),
    "completed": Place(570, 80, "#dcfce7", "#16a34a"),
    "failed": Place(570, 565, "#fee2e2", "#dc2626"),
}

ARROWS: Final = {
    ("none", "running"): Arrow("M148 310 H206", 177, 300),
    ("running", "running"): Arrow("M240 285 C210 205 300 205 286 279", 224, 216, "end"),
    ("running", "completed"): Arrow("M310 285 C340 150 420 86 496 80", 378, 112, "end"),
    ("held", "completed"): Arrow("M830 285 C800 150 720 86 644 80", 764, 112, "start"),
    ("running", "failed"): Arrow("M300 335 C330 480 420 556 496 562", 352, 500, "end"),
    ("held", "failed"): Arrow("M840 335 C810 480 720 556 644 562", 794, 500, "start"),
    ("running", "held"): Arrow("M348 310 H786", 570, 278),
    ("running", "released"): Arrow("M348 322 C420 330 460 360 506 383", 424, 333, "start"),
    ("released", "running"): Arrow("M502 414 C430 410 380 380 342 340", 398, 408, "end"),
    ("released", "held"): Arrow("M634 383 C680 360 720 330 788 322", 684, 350, "end"),
    ("held", "released"): Arrow("M798 340 C760 380 710 410 644 414", 668, 440, "start"),
    ("held", "held"): Arrow("M880 285 C866 205 960 205 904 279", 908, 212),
    ("completed", "none"): Arrow("M570 105 V140", 586, 130, "start"),
    ("failed", "none"): Arrow("M570 590 V612", 592, 612, "start"),
    ("released", "none"): Arrow("M570 435 V470", 586, 462, "start"),
    ("running", "none"): Arrow("M252 335 V392", 242, 376, "end"),
    ("held", "none"): Arrow("M896 335 V392", 908, 376, "start"),
}
ENDS: Final = {  # a forgotten record is none again; a ring stands for it, to spare long arrows
    "completed": (570, 152),
    "failed": (570, 622),
    "released": (570, 482),
    "running": (252, 402),
    "held": (896, 402),
}

INTRODUCTION: Final = """\
# States of a record

<!-- Written by docs/make_states.py from src/oncekey/core/machine.py. Change those. -->

A scope and a key have one record or none. These are the statuses it can have and everything that
can change them; the page is generated from the table that the tests compare with the code.

![The states of a record](images/states.svg)

- **none**: no record, or an expired one. The ring at the end of an arrow means the same.
- **running**: an attempt owns the record until its lease ends.
- **completed**, **failed**: settled. Duplicates are answered with the result, or the kept error.
- **released**: the last attempt ended without an answer. The key is free; its history is kept.
- **held**: nobody knows how an attempt ended. Refused until somebody resolves it.

The owner is the attempt whose token *and* nonce are in the record. A write by anybody else, and
everything that is not in a table below, leaves the record as it is and is answered `lost`.

Of the rows with the same status, the first one that fits counts. A settled or released record also
expires: then it counts as absent.
"""

TITLES: Final = {
    "claim": "May I run this?",
    "renew": "I am still at it.",
    "note": "Keep this for whoever comes after me.",
    "settle": "It is done, or it failed for good.",
    "release": "I stop here without an answer.",
    "resolve": "This is how it ended, says a human or `reconcile`.",
    "forget": "As if it had never been.",
}


def page() -> str:
    """The text of docs/states.md."""
    parts = [INTRODUCTION]
    for verb in dict.fromkeys(row.verb for row in TABLE):
        parts.append(f"\n## {verb}\n\n{TITLES[verb]}\n\n| status | when | becomes | answer |")
        parts.append("|---|---|---|---|")
        rows = [row for row in TABLE if row.verb == verb]
        parts += [
            f"| {row.status} | {_when(row, rows)} | {_becomes(row)} | {row.answer} |"
            for row in rows
        ]
    return "\n".join(parts) + "\n"


def _when(row: Row, rows: list[Row]) -> str:
    """The condition; a row without one comes after those of its status that have one."""
    alone = [one for one in rows if one.status == row.status] == [row]
    return row.when or ("always" if alone else "otherwise")


def _becomes(row: Row) -> str:
    return "same" if row.becomes == row.status else f"**{row.becomes}**"


def words() -> dict[tuple[str, str], list[str]]:
    """What stands beside each arrow: the verbs, with their condition where there is one only."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in TABLE:
        writes = row.answer in ("Granted", "done") and "again" not in row.when
        if row.becomes == row.status and (not writes or row.status == "none"):
            continue
        when = row.when.replace(", by owner", "").replace(", token as read", "")
        if when in ("by owner", "token as read", row.becomes):
            when = ""
        verbs = found.setdefault((row.status, row.becomes), {})
        verbs.setdefault(row.verb, []).append(when)
    return {
        arrow: [_phrase(verb, whens) for verb, whens in verbs.items()]
        for arrow, verbs in found.items()
    }


def _phrase(verb: str, whens: list[str]) -> str:
    only = whens[0] if len(whens) == 1 else ""
    return f"{verb}: {only}" if only else verb


def diagram() -> str:
    """The text of docs/images/states.svg."""
    labels = words()
    if set(labels) != set(ARROWS):
        msg = f"drawn or in the table, but not both: {sorted(set(labels) ^ set(ARROWS))}"
        raise ValueError(msg)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            'aria-label="The states of a record and what changes them" '
            'font-family="system-ui, sans-serif" font-size="14">'
        ),
        (
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            'markerHeight="7" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#475467"/></marker>'
            "</defs>"
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="12" fill="#fbfcfe"/>',
    ]
    for (start, end), arrow in ARROWS.items():
        forgets = end == "none"
        style = ' stroke-dasharray="4 3"' if forgets else ""
        parts.append(
            f'<path d="{arrow.path}" fill="none" stroke="#475467" stroke-width="1.6"{style} '
            'marker-end="url(#tip)"/>'
        )
        if forgets:
            x, y = ENDS[start]
            parts.append(f'<circle cx="{x}" cy="{y}" r="7" fill="#fff" stroke="#98a2b3"/>')
        parts += [
            f'<text x="{arrow.x}" y="{arrow.y + 18 * line}" text-anchor="{arrow.anchor}" '
            f'fill="#344054">{escape(text)}</text>'
            for line, text in enumerate(labels[start, end])
        ]
    for name, place in PLACES.items():
        width, height = BOX
        dashed = ' stroke-dasharray="5 4"' if name == "none" else ""
        parts.append(
            f'<rect x="{place.x - width // 2}" y="{place.y - height // 2}" width="{width}" '
            f'height="{height}" rx="10" fill="{place.fill}" stroke="{place.edge}" '
            f'stroke-width="2"{dashed}/>'
        )
        parts.append(
            f'<text x="{place.x}" y="{place.y + 5}" text-anchor="middle" font-size="16" '
            f'font-weight="600" fill="#101828">{name}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    (DOCS / "states.md").write_text(page(), encoding="utf-8")
    (DOCS / "images" / "states.svg").write_text(diagram(), encoding="utf-8")
