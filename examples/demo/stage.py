"""Where the demonstration is shown: with colours on a terminal, as plain text, or as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from http import HTTPStatus
from itertools import groupby
from typing import Protocol

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from examples.demo.case import Case, Shown
from examples.demo.talk import REPLAYED, Exchange, Line

WIDTH = 100


class Stage(Protocol):
    """What the demonstration needs of wherever it is shown."""

    def opening(self, words: str) -> None:
        """Say what this is."""

    def show(self, number: int, of: int, case: Case, shown: Shown) -> None:
        """Show what was asked and answered, and what is claimed about it."""

    def closing(self, words: str) -> None:
        """The last words."""


class Terminal:
    """Panels and colours."""

    def __init__(self, console: Console) -> None:
        """Everything goes to this console."""
        self.console = console

    def opening(self, words: str) -> None:
        """Say what this is."""
        self.console.print()
        self.console.print(Panel(Text(words), title="[bold]Oncekey", border_style="cyan"))

    def show(self, number: int, of: int, case: Case, shown: Shown) -> None:
        """Show what was asked and answered, and what is claimed about it."""
        out = self.console.print
        out()
        title = Text.assemble((f"{number}/{of}", "bold cyan"), "  ", (case.title, "bold"))
        out(Rule(title, align="left", style="cyan"))
        out()
        for mark, words, more in lines(shown.exchanges):
            colour = "bold magenta" if mark == ">" else "bold blue"
            arrow = "→" if mark == ">" else "←"
            out(Text.assemble("  ", (arrow, colour), " ", (words, "bold")))
            if more:
                out(Padding(Text(more, style="bright_black"), (0, 0, 0, 4)))
        out()
        for fact in shown.facts:
            tick = ("✓", "bold green") if fact.holds else ("✗", "bold red")
            out(Text.assemble("  ", tick, " ", fact.text))
        out(Padding(Text(case.why, style="italic cyan"), (0, 0, 0, 4)))

    def closing(self, words: str) -> None:
        """The last words."""
        self.console.print()
        self.console.print(Text(words, style="bold"))
        self.console.print()


class Plain:
    """Lines of ASCII."""

    def opening(self, words: str) -> None:
        """Say what this is."""
        print(f"Oncekey\n\n{textwrap.fill(words, WIDTH)}")

    def show(self, number: int, of: int, case: Case, shown: Shown) -> None:
        """Show what was asked and answered, and what is claimed about it."""
        title = f"{number}/{of}  {case.title}"
        print(f"\n{title}\n{'-' * len(title)}\n")
        for mark, words, more in lines(shown.exchanges):
            print(f"  {mark} {words}")
            if more:
                print(textwrap.indent(more, "    "))
        print()
        for fact in shown.facts:
            print(f"  {'ok    ' if fact.holds else 'NOT SO'}  {fact.text}")
        print(textwrap.indent(textwrap.fill(case.why, WIDTH - 10), " " * 10))

    def closing(self, words: str) -> None:
        """The last words."""
        print(f"\n{textwrap.fill(words, WIDTH)}")


class Lines:
    """One JSON object for each case."""

    def opening(self, words: str) -> None:
        """Nothing that is no case is said."""

    def show(self, number: int, of: int, case: Case, shown: Shown) -> None:  # noqa: ARG002 - a program can count
        """Show what was asked and answered, and what is claimed about it."""
        print(
            json.dumps(
                {
                    "case": case.name,
                    "title": case.title,
                    "exchanges": [_facts(one) for one in shown.exchanges],
                    "charged": shown.charged,
                    "claims": [{"claim": one.text, "holds": one.holds} for one in shown.facts],
                }
            ),
            flush=True,
        )

    def closing(self, words: str) -> None:
        """Nothing that is no case is said."""


def lines(exchanges: list[Exchange | Line]) -> Iterator[tuple[str, str, str]]:
    """A mark, words and more words for each request and each answer; equal ones are counted."""
    last = None
    for one, group in groupby(exchanges):
        times = len(list(group))
        if isinstance(one, Line):
            yield one.mark, one.words, ""
            continue
        if one.ask == last:
            yield ">", "the same again" if times == 1 else f"the same {times} times more", ""
        else:
            yield ">", f"POST {one.ask.path}  key {one.ask.key}", one.ask.text
        last = one.ask
        if one.status == 0:
            yield "<", "no answer", ""
            continue
        status = f"{one.status} {HTTPStatus(one.status).phrase}"
        each = f", each time {REPLAYED}: true" if times > 1 else f", {REPLAYED}: true"
        yield "<", status + (each if one.replayed else ""), one.body


def _facts(one: Exchange | Line) -> dict[str, object]:
    if isinstance(one, Line):
        return {"did" if one.mark == ">" else "answer": one.words}
    return {
        "method": "POST",
        "path": one.ask.path,
        "key": one.ask.key,
        "body": one.ask.body,
        "status": one.status or None,
        "replayed": one.replayed,
        "answer": one.value if one.body else None,
    }
