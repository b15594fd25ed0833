"""A report for people on a terminal, and for pipes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench.report.rows import Report, Row
from bench.report.words import HEADINGS, HOW_COUNTED, cells, legend
from bench.timing import Tick

_COLOURS = {"ok": "green", "MISSED": "bold red", "NOT MEASURED": "yellow"}


def show(report: Report, console: Console) -> None:
    """A table where there is a terminal, else one line for each fact."""
    if console.is_terminal:
        _table(report, console)
    else:
        _lines(report)
    _end(report, console)


def _table(report: Report, console: Console) -> None:
    console.print(
        "  ".join(f"[dim]{name}[/] {value}" for name, value in report.machine.items()),
        highlight=False,
    )
    table = Table(header_style="bold")
    for heading in HEADINGS:
        table.add_column(heading)
    for row in report.rows:
        *plain, verdict = cells(row)
        colour = _COLOURS.get(verdict, "none")
        table.add_row(*plain, f"[{colour}]{verdict}[/]")
    console.print(table)


def _lines(report: Report) -> None:
    for name, value in report.machine.items():
        print(f"{name}: {value}")
    print()
    for row in report.rows:
        print(_line(row))


def _line(row: Row) -> str:
    title, result, against, against_value, ratio, target, verdict = cells(row)
    parts = [f"{title}: {result}"]
    if ratio:
        parts.append(f"{ratio} of {against}, {against_value}")
    if target:
        parts.append(f"target {target}: {verdict}")
    return "; ".join(parts)


def _end(report: Report, console: Console) -> None:
    remarks = [f"{row.title}: {row.remark}" for row in report.rows if row.remark]
    settings = ", ".join(f"{name} {value:g}" for name, value in asdict(report.settings).items())
    texts = ["", *remarks, "", legend(report.settings.rounds), HOW_COUNTED, f"Settings: {settings}"]
    for text in texts:
        console.print(text, highlight=False, markup=False, soft_wrap=not console.is_terminal)
    for row in report.missed:
        text = f"{row.verdict}: {row.title}, target {row.target}"
        console.print(text, style="bold red", highlight=False)


@contextmanager
def progress(total: int) -> Iterator[Tick]:
    """A bar on the error output while the block runs, if that is a terminal."""
    console = Console(stderr=True)
    columns = TextColumn("measuring"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    # No thread of its own: it would run inside of what is timed.
    bar = Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("measuring", total=total)

        def tick() -> None:
            bar.advance(task)
            bar.refresh()

        yield tick
