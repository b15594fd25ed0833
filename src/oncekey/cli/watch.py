"""`oncekey watch`: the newest records and the counts, until Ctrl-C."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Final

import typer
from rich.live import Live

from oncekey import StoreError
from oncekey.cli.as_json import fields_of, print_json
from oncekey.cli.exits import WRONG, CommandError
from oncekey.cli.ls import Wanted, status_of
from oncekey.cli.opening import records
from oncekey.cli.options import Json, Redact, StoreUrl
from oncekey.cli.render import console
from oncekey.cli.screen import HEAD, Frame
from oncekey.cli.stats import fields_of_counts
from oncekey.cli.times import iso, now
from oncekey.cli.watching import View, Watch
from oncekey.policy import seconds

_LINES: Final = 20
"""Records in one line of JSON."""


def watch(  # noqa: PLR0913 - each is an option of the command
    *,
    ctx: typer.Context,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="How often to look: 500ms, 2s, 1min.")
    ] = "2s",
    status: Annotated[Wanted | None, typer.Option(help="Only records with this status.")] = None,
    count: Annotated[
        int, typer.Option(min=0, metavar="N", help="End after so many looks; 0: at Ctrl-C.")
    ] = 0,
    redact: Redact = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Watch the newest records and the counts, until Ctrl-C."""
    pause = seconds(every, "--every")
    out = console()
    if not as_json and not out.is_terminal:
        msg = "watch draws on a terminal, and there is none; --json prints a line for each look"
        raise CommandError(msg, WRONG)
    with records(ctx, store) as once, _until_told():
        watching = Watch(once.store, status_of(status))
        first = watching.view(_LINES if as_json else out.height - HEAD)
        if as_json:
            again = _views(watching, first, pause, lambda: _LINES)
            for view in islice(again, count or None):
                _print(view, redact=redact)
            return
        frame = Frame(ctx.obj.url, every, redact=redact)
        again = _views(watching, first, pause, lambda: out.height - HEAD)
        with Live(console=out, screen=True, auto_refresh=False) as live:
            for view in islice(again, count or None):
                live.update(frame.drawn(view, out.size), refresh=True)


def _views(
    watching: Watch, first: View, pause: float, rows: Callable[[], int]
) -> Iterator[View | StoreError]:
    """One view after the other; a store that is gone for a while is waited for."""
    yield first
    while True:
        time.sleep(pause)
        try:
            yield watching.view(rows())
        except StoreError as error:
            yield error


def _print(view: View | StoreError, *, redact: bool) -> None:
    """One line of JSON, at once."""
    if isinstance(view, StoreError):
        print_json({"at": iso(now()), "error": str(view)}, at_once=True)
    else:
        told = [fields_of(one, None, redact=redact) for one in view.records]
        for fields in told:
            del fields["result_size"]
        head = {"at": iso(view.counts.now), **fields_of_counts(view.counts)}
        fields = {**head, "new": view.new, "complete": view.complete, "records": told}
        print_json(fields, at_once=True)
    sys.stdout.flush()


@contextmanager
def _until_told() -> Iterator[None]:
    """Ctrl-C ends the block, and so does SIGTERM; the terminal is as it was."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if main else None
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
