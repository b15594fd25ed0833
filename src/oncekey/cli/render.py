"""Records for people: simple columns, with colours where a terminal is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oncekey import Record, UnreadableError
from oncekey.cli.text import printable
from oncekey.cli.times import beside, length

COLOURS: Final = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "released": "blue",
    "held": "bold yellow",
}
_TITLES: Final = ["STATUS", "SCOPE", "KEY", "LABEL", "ATTEMPT", "AGE", "EXPIRES", "NOTES", "STEPS"]
_GIVEN_UP: Final = ("LABEL", "STEPS", "NOTES", "ATTEMPT")
_GAP: Final = "  "


def console(*, error: bool = False) -> Console:
    """The output, or the standard error. `NO_COLOR` leaves text without any escape code."""
    return Console(
        file=sys.stderr if error else sys.stdout,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


def listing(records: Sequence[Record], present: int) -> None:
    """The records are printed, one per line; a narrow terminal gets fewer columns."""
    out = console()
    rows = [_TITLES, *(_row(record, present) for record in records)]
    if out.is_terminal:
        out.print(_table(_fitting(rows, out.width)))
    else:
        _print_columns(rows)


def _fitting(rows: list[list[str]], width: int) -> list[list[str]]:
    """The rows without the columns that are given up, one after another, until they fit."""
    for title in _GIVEN_UP:
        if sum(_widths(rows)) + len(_GAP) * (len(rows[0]) - 1) <= width:
            break
        column = rows[0].index(title)
        rows = [row[:column] + row[column + 1 :] for row in rows]
    return rows


def _table(rows: list[list[str]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), header_style="dim")
    for title in rows[0]:
        table.add_column(title, no_wrap=title not in ("SCOPE", "KEY"), overflow="fold")
    for status, *rest in rows[1:]:
        table.add_row(Text(status, style=COLOURS.get(status, "")), *map(Text, rest))
    return table


def _row(record: Record, present: int) -> list[str]:
    notes, steps = _counts(record)
    return [
        record.status,
        printable(record.scope or "-"),
        printable(record.key),
        printable(record.label or "-"),
        str(record.attempt),
        length(present - record.created),
        beside(record.expires, present) if record.expires else "never",
        notes,
        steps,
    ]


def _counts(record: Record) -> tuple[str, str]:
    try:
        return str(len(record.notes)), str(len(record.steps))
    except UnreadableError:
        return "?", "?"


def _widths(rows: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _print_columns(rows: list[list[str]]) -> None:
    """One line for each row, however long: what is cut or folded cannot be searched."""
    widths = _widths(rows)
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        sys.stdout.write(f"{_GAP.join(cells).rstrip()}\n")
