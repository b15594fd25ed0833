"""The pages of the documentation that a run writes: docs/fault-matrix.md, and a part of another."""

import os
import platform
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.faults.matrix.cells import Done
from tests.faults.matrix.soak import Soaked

ROOT = Path(__file__).parents[3]
FIGURES = Path(__file__).with_name("figures.json")
PAGE = ROOT / "docs" / "fault-matrix.md"
PROMISES = ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- faults:begin -->", "<!-- faults:end -->"
FAIL_OVERS = {
    ROOT / "docs" / "stores-postgres.md": ("F30",),
    ROOT / "docs" / "stores-redis.md": ("F31", "F32"),
}
"""The pages that show what many fail-overs came to, and the rows that each shows."""

HEAD = """\
# Fault matrix

What happens when things break, measured. Real processes are killed and stopped, real servers are
killed, cut off, filled up and failed over, while three worker processes ask for the same keys.
Every effect is a line in a ledger that prevents nothing, so that what happens twice is counted.
Every answer is written down, and a checker looks for an order of events in which all answers of a
key were right. At the end the troubles are over and every key is asked for once more: it must be
answered, and with the same value.

This page is written by `make faults`, and its last part by `make soak`. {where}

*Keys* is how many different operations there were, *asked* how often they were asked for, *again*
how many effects were asked for more than once, *doubled* how many happened more than once: with an
effect that takes a key (`keyed`), an effect that is asked for again does not happen again. A cell
that promises nothing says *shown* and what was seen.

[Guarantees](guarantees.md) explains the modes. `reconciled` is a bare effect with a `reconcile`
that can look it up; `held` is one with `on_crash="hold"`, where an operator looks it up.
"""


class Saved(Struct):
    """The figures of the last run."""

    seconds: float = 0.0
    machine: str = ""
    cells: list[Done] = []
    failovers: list[Done] = []
    """The rows about fail-over, with many of them in each."""
    soak: Soaked | None = None


def saved() -> Saved:
    """What the last run left."""
    if not FIGURES.exists():
        return Saved()
    return msgspec.json.decode(FIGURES.read_bytes(), type=Saved)


def write_matrix(done: list[Done]) -> None:
    """The figures of these rows are saved, in place of earlier ones, and on the pages."""
    figures = saved()
    figures.cells = merged(figures.cells, done)
    figures.seconds = round(sum(one.seconds for one in figures.cells))
    figures.machine = machine()
    _write(figures)


def write_failovers(done: list[Done]) -> None:
    """The same for what `make failovers` has measured."""
    figures = saved()
    figures.failovers = merged(figures.failovers, done)
    _write(figures)


def merged(before: list[Done], done: list[Done]) -> list[Done]:
    """The cells with those of the rows that were run again in place of the earlier ones."""
    rows = {one.row for one in done}
    cells = [one for one in before if one.row not in rows] + done
    return sorted(cells, key=lambda one: int(one.row[1:]))


def write_soak(soaked: Soaked) -> None:
    """The figures of this soak are saved and on the pages."""
    figures = saved()
    figures.soak = soaked
    _write(figures)


def _write(figures: Saved) -> None:
    FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    PAGE.write_text(rendered(figures))
    PROMISES.write_text(inserted(PROMISES.read_text(), summary(figures)))
    for place, rows in FAIL_OVERS.items():
        place.write_text(inserted(place.read_text(), failovers(figures, rows)))


def machine() -> str:
    """Where the figures come from."""
    return f"{os.cpu_count()} cores, Python {platform.python_version()}"


def rendered(figures: Saved) -> str:
    """The whole page."""
    from tests.faults.matrix.rows import NOT_RUN

    where = f"The last run took {figures.seconds:.0f} s on {figures.machine}."
    parts = [HEAD.format(where=where)]
    for row, cells in by_row(figures.cells).items():
        parts.append(f"## {row}: {_title(cells)}\n")
        parts.append(table(cells))
    parts.append("## Not run\n")
    parts.append(
        "| row | what, and why |\n|---|---|\n"
        + "".join(f"| {row} | {why} |\n" for row, why in NOT_RUN.items())
    )
    parts.append("## F24: everything at once\n")
    parts.append(soak_table(figures.soak))
    return "\n".join(parts)


def by_row(cells: list[Done]) -> dict[str, list[Done]]:
    """The cells of each row."""
    rows: dict[str, list[Done]] = defaultdict(list)
    for one in cells:
        rows[one.row].append(one)
    return rows


def _title(cells: list[Done]) -> str:
    titles = {one.title for one in cells}
    return titles.pop() if len(titles) == 1 else SHORT[cells[0].row]


def table(cells: list[Done]) -> str:
    """One line for each cell of a row."""
    several = len({one.title for one in cells}) > 1
    columns = "store | surface | mode | keys | asked | again | doubled | lost | promised | seen"
    lines = [
        f"| {'fault | ' if several else ''}{columns} |",
        f"|{'---|' if several else ''}---|---|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for one in cells:
        assert one.result is not None
        figures = one.result.figures
        seen = ", ".join(f"{name}: {_plain(what)}" for name, what in one.result.notes.items())
        fault = f"{one.title} | " if several else ""
        lines.append(
            f"| {fault}{one.store} | {one.surface} | {one.mode} | {figures.keys:,} |"
            f" {figures.operations:,} | {figures.asked_again:,} | {figures.doubled:,} |"
            f" {figures.lost:,} | {one.result.promise} | {seen} |"
        )
    return "\n".join(lines) + "\n"


def _plain(what: Any) -> str:
    if isinstance(what, list):
        return " ".join(map(str, what))
    return f"{what:,}" if isinstance(what, int) else str(what)


def soak_table(soaked: Soaked | None) -> str:
    """What the last soak came to."""
    if soaked is None:
        return "There has been no `make soak` yet.\n"
    words = (
        f"{soaked.seconds / 60:.0f} minutes in {soaked.rounds} rounds: {soaked.operations:,}"
        f" operations, {soaked.kills:,} workers killed, {soaked.stops:,} stopped,"
        f" {soaked.outages:,} servers killed, {soaked.replies_lost:,} replies lost."
    )
    columns = "store | keys | asked | again | doubled | lost | answered in two ways | stuck"
    lines = [
        f"{words}\n",
        f"| {columns} | out of order |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for store, one in soaked.stores.items():
        lines.append(
            f"| {store} | {one.keys:,} | {one.operations:,} | {one.asked_again:,} |"
            f" {one.doubled:,} | {one.lost:,} | {one.mismatched:,} | {one.stuck:,} |"
            f" {one.tangled:,} |"
        )
    return "\n".join(lines) + "\n"


def failovers(figures: Saved, rows: Sequence[str]) -> str:
    """What `make failovers` has measured for these rows: one line for each group of workers."""
    columns = (
        "which",
        "mode",
        "fail-overs",
        "asked",
        "refused",
        "ran again",
        "doubled",
        "lost",
        "answered in two ways",
        "no claim when killed, s",
        "when paused, s",
        "when cut off, s",
    )
    lines = [f"| {' | '.join(columns)} |", f"|---|---|{'---:|' * (len(columns) - 2)}"]
    for one in figures.failovers:
        if one.row not in rows:
            continue
        assert one.result is not None
        found, notes = one.result.figures, one.result.notes
        counts = (
            notes["fail-overs"],
            found.operations,
            notes["refused"],
            found.asked_again,
            found.doubled,
            found.lost,
            found.mismatched,
        )
        silences = (notes[f"no claim when {fault}, s"] for fault in ("killed", "paused", "cut off"))
        cells = (one.title, f"{one.mode}, {one.surface}", *map(_plain, counts), *silences)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(figures: Saved) -> str:
    """A line for each row, for the page of promises."""
    words = (
        "`make faults` breaks processes, servers and networks and counts what happened; the\n"
        "[fault matrix](fault-matrix.md) has every figure. *Doubled* and *lost* count what is\n"
        "promised not to happen; what is not promised is shown apart."
    )
    lines = [
        "## Seen under faults\n",
        f"{words}\n",
        "| row | fault | cells | asked | doubled | lost | without a promise |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for row, cells in by_row(figures.cells).items():
        results = [one.result for one in cells if one.result is not None]
        kept = [one.figures for one in results if not shown(one.promise)]
        free = [one.figures.asked_again for one in results if shown(one.promise)]
        apart = f"{sum(free):,} ran again" if free else ""
        title = _title(cells)
        asked = sum(one.figures.operations for one in results)
        lines.append(
            f"| {row} | {title} | {len(cells)} | {asked:,} |"
            f" {sum(one.doubled for one in kept):,} | {sum(one.lost for one in kept):,} | {apart} |"
        )
    if figures.soak is not None:
        soaked = figures.soak
        doubled = sum(one.doubled for one in soaked.stores.values())
        lost = sum(one.lost for one in soaked.stores.values())
        lines.append(
            f"| F24 | everything at once, {soaked.seconds / 60:.0f} minutes |"
            f" {len(soaked.stores)} | {soaked.operations:,} | {doubled} | {lost} | |"
        )
    return "\n".join(lines) + "\n"


SHORT = {
    "F6": "the power fails",
    "F7": "a fail-over of Redis, with and without `wait=`",
    "F8": "the memory of Redis is full",
    "F12": "the same key for another operation",
    "F25": "code hangs in the process that is asked again",
    "F29": "PgBouncer is between, and is killed",
    "F31": "a primary under three Sentinels is killed, paused, cut off",
    "F28": "a lock is waited for longer than a lease; an owner asks again",
}


def shown(promise: str) -> bool:
    """Whether a cell promises nothing and only shows what happens."""
    return promise.endswith(": shown")


def inserted(text: str, part: str) -> str:
    """The page with this part between the two marks, which are added where they are missing."""
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n{BEGIN}\n{END}\n"
    marked = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return marked.sub(lambda _: f"{BEGIN}\n{part}{END}", text)
