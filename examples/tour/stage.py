"""Where the tour is shown: with colours on a terminal, as plain text in a pipe."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from examples.tour.step import Fact, Step

WIDTH = 100


class Stage(Protocol):
    """What the tour needs of wherever it is shown."""

    def opening(self, words: str) -> None:
        """Say what this is."""

    def announce(self, number: int, of: int, step: Step) -> None:
        """Show the step's title and its code, before it runs."""

    def conclude(self, step: Step, facts: Sequence[Fact], logged: Sequence[str]) -> None:
        """Show what came of the step, and why."""

    def closing(self, records: Iterable[tuple[str, ...]], words: str) -> None:
        """Show what is left in the store, and the last words."""


class Terminal:
    """Panels and colours."""

    def __init__(self, console: Console) -> None:
        """Everything goes to this console."""
        self.console = console

    def opening(self, words: str) -> None:
        """Say what this is."""
        self.console.print()
        self.console.print(Panel(Text(words), title="[bold]Oncekey", border_style="cyan"))

    def announce(self, number: int, of: int, step: Step) -> None:
        """Show the step's title and its code, before it runs."""
        self.console.print()
        self.console.print(
            Rule(f"[bold cyan]{number}/{of}[/]  [bold]{step.title}", align="left", style="cyan")
        )
        code = Syntax(
            step.code, "python", theme="ansi_dark", background_color="default", word_wrap=True
        )
        self.console.print(Padding(code, (1, 2)))

    def conclude(self, step: Step, facts: Sequence[Fact], logged: Sequence[str]) -> None:
        """Show what came of the step, and why."""
        lines: list[RenderableType] = [_line(fact) for fact in facts]
        lines += [Text.assemble(("  log ", "yellow"), (line, "dim")) for line in logged]
        lines.append(Text.assemble(("  why ", "cyan"), step.why))
        self.console.print(Group(*map(_hanging, lines)))

    def closing(self, records: Iterable[tuple[str, ...]], words: str) -> None:
        """Show what is left in the store, and the last words."""
        table = Table("scope", "key", "status", "attempts", box=box.SIMPLE_HEAD)
        for record in records:
            table.add_row(*record)
        self.console.print()
        self.console.print(Rule("[bold]What is in the store now", align="left", style="cyan"))
        self.console.print(table)
        self.console.print(Text(words, style="bold"))
        self.console.print()


class Plain:
    """Lines of ASCII."""

    def __init__(self) -> None:
        """Everything goes to standard output."""

    def opening(self, words: str) -> None:
        """Say what this is."""
        print(f"Oncekey\n\n{textwrap.fill(words, WIDTH)}")

    def announce(self, number: int, of: int, step: Step) -> None:
        """Show the step's title and its code, before it runs."""
        title = f"{number}/{of}  {step.title}"
        print(f"\n{title}\n{'-' * len(title)}\n\n{textwrap.indent(step.code, '    ')}\n")

    def conclude(self, step: Step, facts: Sequence[Fact], logged: Sequence[str]) -> None:
        """Show what came of the step, and why."""
        for fact in facts:
            _print_hanging("  ok  " if fact.holds else "  NOT SO  ", fact.text)
        for line in logged:
            _print_hanging("  log ", line)
        _print_hanging("  why ", step.why)

    def closing(self, records: Iterable[tuple[str, ...]], words: str) -> None:
        """Show what is left in the store, and the last words."""
        print("\nWhat is in the store now\n")
        for scope, key, status, attempts in (("scope", "key", "status", "attempts"), *records):
            print(f"  {scope:6} {key:20} {status:10} {attempts}")
        print(f"\n{words}")


def chosen(console: Console) -> Stage:
    """Colours where somebody looks and the letters are there, else plain text."""
    colourful = console.is_terminal and console.encoding.startswith("utf")
    return Terminal(console) if colourful else Plain()


def canvas() -> Console:
    """A console that is recorded instead of seen."""
    return Console(width=WIDTH, record=True, file=StringIO(), force_terminal=True)


def picture(console: Console) -> str:
    """What was recorded, as an SVG that fetches nothing."""
    svg = console.export_svg(title="make demo", unique_id="tour")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def _line(fact: Fact) -> Text:
    mark = ("    ✓ ", "bold green") if fact.holds else ("    ✗ ", "bold red")
    return Text.assemble(mark, fact.text)


def _hanging(line: RenderableType) -> RenderableType:
    """The line with what does not fit on it below its words, and not below its mark."""
    assert isinstance(line, Text)
    table = Table.grid()
    table.add_column(width=6, no_wrap=True)
    table.add_column()
    table.add_row(line[:6], line[6:])
    return table


def _print_hanging(mark: str, text: str) -> None:
    indent = " " * len(mark)
    print(textwrap.fill(text, WIDTH, initial_indent=mark, subsequent_indent=indent))
