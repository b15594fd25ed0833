"""Commands that run until they are told to stop, and say meanwhile what they do."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from types import FrameType
from typing import Any, Final, Protocol

import typer
from rich.live import Live

from oncekey.cli.output import console, print_json

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """What runs in the main thread, and ends soon after `stop`."""

    def stop(self) -> None:
        """Say that it shall end."""
        ...


class Counts(Protocol):
    """What was done so far."""

    def fields(self) -> dict[str, Any]:
        """Return it as fields, for `--json`."""
        ...

    def line(self) -> str:
        """Return it as one line, for people."""
        ...


@contextmanager
def stopped_by_signals(made: Stoppable) -> Iterator[None]:
    """Stop it after its work in hand at the first signal; end the process at the second."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        made.stop()

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def told(tally: Counts, period: float, *, as_json: bool) -> Iterator[None]:
    """Show the counts during the block.

    On a terminal they are updated in place. Elsewhere a line is printed at the start, after every
    `period` and at the end.
    """
    screen = console(error=True)
    if screen.is_terminal and not as_json:
        with Live(get_renderable=tally.line, console=screen, transient=True):
            yield
        typer.echo(tally.line())
        return

    def say(event: str) -> None:
        if as_json:
            print_json({"event": event, **tally.fields()}, at_once=True)
        else:
            typer.echo(tally.line())

    def say_often() -> None:
        while not over.wait(period or None):
            say("status")

    over = Event()
    voice = Thread(target=say_often, name="oncekey-status")
    say("started")
    voice.start()
    try:
        yield
    finally:
        over.set()
        voice.join()
        say("stopped")
