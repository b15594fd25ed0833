"""`oncekey purge`: delete expired records, and expired messages of an inbox."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from oncekey import Once
from oncekey.cli.errors import NoTablesError
from oncekey.cli.options import Json, Reason, StoreUrl, Yes, opened_records, who
from oncekey.cli.output import console, print_json
from oncekey.inspection.listing import count_due
from oncekey.policy import microseconds, seconds

_ANY_KEY: Final = "oncekey purge"

Heard = Callable[[int], None]


def purge(
    *,
    ctx: typer.Context,
    grace: Annotated[
        str,
        typer.Option(metavar="TIME", help="Keep what expired in this time: 30min, 12h, 7d, 0."),
    ] = "7d",
    reason: Reason = "",
    yes: Yes = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Remove what expired longer ago than the grace period."""
    from oncekey.messages.purge import purge_messages

    age = microseconds(seconds(grace, "--grace", zero=True))
    gone: dict[str, int] = {}
    with ExitStack() as opened:
        once = _opened(opened, ctx, store, grace)
        messages = _due_messages(ctx.obj.url, grace)
        expected = None if once is None else count_due(once.store, age)
        if not yes and sys.stdin.isatty() and (expected or messages):
            said = " and ".join(_said(expected, messages))
            question = f"Remove {said} that expired more than {grace} ago?"
            typer.confirm(question, abort=True, err=True)
        if once is not None:
            with _progress("records", expected) as heard:
                gone["purged"] = once.purge(grace=grace, progress=heard, by=who(), reason=reason)
        if messages is not None:
            with _progress("messages", messages) as heard:
                gone["messages"] = purge_messages(ctx.obj.url, grace=grace, progress=heard)
    if as_json:
        print_json(gone)
    else:
        for words in _said(gone.get("purged"), gone.get("messages"), none=True):
            typer.echo(f"{words} purged")


def _opened(opened: ExitStack, ctx: typer.Context, store: str | None, grace: str) -> Once | None:
    """Open the records. Return None if the database has only the table of an inbox."""
    try:
        once = opened.enter_context(opened_records(ctx, store))
    except NoTablesError:
        if _due_messages(ctx.obj.url, grace) is None:
            raise
        return None
    once.store.get(
        None, _ANY_KEY
    )  # checks the connection: a purge asks Redis nothing, because it expires keys itself
    return once


def _due_messages(url: str, grace: str) -> int | None:
    """Return how many messages of an inbox have expired, or None if there is no inbox."""
    from oncekey.messages.purge import due_messages

    return due_messages(url, grace=grace)


def _said(records: int | None, messages: int | None, *, none: bool = False) -> Iterator[str]:
    """Yield how many there are of each. `none` includes those with a count of zero."""
    for count, what in ((records, "record"), (messages, "message")):
        if count or (none and count is not None):
            yield f"{count:,} {what}{'' if count == 1 else 's'}"


@contextmanager
def _progress(what: str, expected: int | None) -> Iterator[Heard]:
    """Show a progress bar on a terminal during the block. Yield the function that updates it."""
    screen = console(error=True)
    columns = (TextColumn(f"purging {what}"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    with bar:
        task = bar.add_task("", total=expected)
        yield lambda gone: bar.update(task, completed=gone)
