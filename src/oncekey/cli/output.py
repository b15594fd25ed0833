"""Print records: columns and colours for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oncekey import Record, UnreadableError
from oncekey.cli.keys import name_of
from oncekey.inspection.text import (
    beside,
    iso,
    length,
    notes_and_steps,
    plain,
    printable,
    status_word,
)
from oncekey.observe.redaction import hashed
from oncekey.stores.browse import lapsed

_PERSONAL: Final = ("reference", "notes", "failure", "result")


def print_json(fields: dict[str, Any], *, at_once: bool = False) -> None:
    """Print the fields as one line of JSON in ASCII.

    `at_once` flushes the line, for commands that keep running while a pipe is read.
    """
    sys.stdout.write(json.dumps(plain(fields)) + "\n")
    if at_once:
        sys.stdout.flush()


def fields_of(
    record: Record, size: int | None, present: int, *, result: bool = False, redact: bool = False
) -> dict[str, Any]:
    """Return the fields of the record for `--json`, all but its nonce, which is a secret.

    `present` is the time of the store, and `size` the size of the result. The result itself is
    included only if `result` is set. A field that cannot be read is null, and its name is listed in
    `unreadable`.
    """
    unreadable: list[str] = []
    notes, steps, unread = notes_and_steps(record)
    if unread:
        unreadable += ["notes", "steps"]
    failure = record.failure or None
    if record.error and failure is None:
        unreadable.append("failure")
    fields: dict[str, Any] = {
        "name": name_of(record, redact=redact),
        "scope": record.scope,
        "key": record.key,
        "status": record.status,
        "lapsed": lapsed(record, present),
        "label": record.label,
        "reference": record.reference,
        "attempt": record.attempt,
        "uncertain": record.uncertain,
        "fingerprint": record.fingerprint,
        "token": record.token,
        "created": _iso_or_none(record.created),
        "started": _iso_or_none(record.started),
        "updated": _iso_or_none(record.updated),
        "finished": _iso_or_none(record.finished),
        "lease_end": _iso_or_none(record.lease_end),
        "expires": _iso_or_none(record.expires),
        "version": record.version,
        "notes": None if unread else notes,
        "steps": None if unread else steps,
        "failure": failure,
        "result_size": size,
    }
    if result:
        fields["result"] = _value(record, unreadable)
    fields["unreadable"] = unreadable
    return _hashed(record, fields) if redact else fields


def _iso_or_none(at: int) -> str | None:
    """Return the time in ISO 8601, or None for 0, which means not yet or never."""
    return iso(at) if at else None


def _hashed(record: Record, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without personal data, with hashes in place of the scope and the key."""
    kept = {name: value for name, value in fields.items() if name not in _PERSONAL}
    scope = None if record.scope is None else hashed(record.scope)
    return kept | {"scope": scope, "key": hashed(record.key)}


def _value(record: Record, unreadable: list[str]) -> Any:
    try:
        return record.value
    except UnreadableError:
        unreadable.append("result")
        return None


COLOURS: Final = {
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "released": "blue",
    "held": "bold yellow",
    "lapsed": "yellow",
}
_TITLES: Final = ["STATUS", "KEY", "LABEL", "ATTEMPT", "AGE", "EXPIRES", "NOTES", "STEPS"]
_GIVEN_UP: Final = ("LABEL", "STEPS", "NOTES", "ATTEMPT", "EXPIRES")
_GAP: Final = "  "
Rows = list[list[str]]


def console(*, error: bool = False) -> Console:
    """Return a console for the output or the standard error. `NO_COLOR` switches escapes off."""
    return Console(
        file=sys.stderr if error else sys.stdout,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


class Listing:
    """Print records one per line, page after page, with fewer columns on a narrow terminal."""

    def __init__(self, *, redact: bool = False) -> None:
        self._redact = redact
        self._out = console()
        self._titles: list[str] | None = None
        self._widths: list[int] = []

    def page(self, records: Sequence[Record], present: int) -> None:
        """Print the records, with titles above the first page and where the columns change."""
        rows = rows_of(records, present, redact=self._redact)
        if self._out.is_terminal:
            rows = fitting(rows, self._out.width)
            self._out.print(table_of(rows, titles=self._titles != rows[0]))
        else:
            self._print_columns(rows)
        self._titles = rows[0]

    def _print_columns(self, rows: Rows) -> None:
        """Print one line for each row, never cut or folded, so that it can be searched."""
        known = self._widths or [0] * len(rows[0])
        self._widths = widths = list(map(max, known, _widths(rows)))
        for row in rows if self._titles is None else rows[1:]:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write(f"{_GAP.join(cells).rstrip()}\n")


def rows_of(records: Sequence[Record], present: int, *, redact: bool = False) -> Rows:
    """Return the titles, and one row for each record."""
    return [_TITLES, *(_row(record, present, redact=redact) for record in records)]


def fitting(rows: Rows, width: int) -> Rows:
    """Return the rows without columns of `_GIVEN_UP`, dropped in its order until they fit."""
    for title in _GIVEN_UP:
        if sum(_widths(rows)) + len(_GAP) * (len(rows[0]) - 1) <= width:
            break
        column = rows[0].index(title)
        rows = [row[:column] + row[column + 1 :] for row in rows]
    return rows


def table_of(rows: Rows, *, titles: bool = True, fold: bool = True) -> Table:
    """Return the rows as a table for a terminal. `fold` wraps what does not fit; else it is cut."""
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, len(_GAP), 0, 0),
        header_style="dim",
        show_header=titles,
    )
    for title in rows[0]:
        key = title == "KEY"
        wide = max(len(row[0]) for row in rows) if title == "STATUS" else None  # it is never cut
        table.add_column(
            title,
            no_wrap=not (key and fold),
            overflow="fold" if fold else "ellipsis",
            min_width=wide,
        )
    for status, *rest in rows[1:]:
        table.add_row(Text(status, style=COLOURS.get(status, "")), *map(Text, rest))
    return table


def _row(record: Record, present: int, *, redact: bool) -> list[str]:
    notes, steps, unread = notes_and_steps(record)
    return [
        printable(status_word(record, present)),
        name_of(record, redact=redact),
        printable(record.label or "-"),
        str(record.attempt),
        length(present - record.created) if record.created else "?",
        beside(record.expires, present) if record.expires else "never",
        "?" if unread else str(len(notes)),
        "?" if unread else str(len(steps)),
    ]


def _widths(rows: Rows) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
