"""`oncekey purge`: what expired long enough ago is gone."""

from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from oncekey import Once
from oncekey.cli.as_json import print_json
from oncekey.cli.opening import records
from oncekey.cli.options import Json, StoreUrl
from oncekey.cli.render import console


def purge(
    *,
    ctx: typer.Context,
    grace: Annotated[
        str,
        typer.Option(metavar="TIME", help="Keep what expired less long ago: 30min, 12h, 7d, 0."),
    ] = "7d",
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Remove the records that expired longer ago than the grace period."""
    with records(ctx, store) as once:
        count = _purged(once, grace)
    if as_json:
        print_json({"purged": count})
    else:
        typer.echo(f"{count} {'record' if count == 1 else 'records'} purged")


def _purged(once: Once, grace: str) -> int:
    """How many are gone; a terminal sees them go. How many there will be, nobody knows before."""
    screen = console(error=True)
    columns = (TextColumn("purging"), BarColumn(), TextColumn("{task.completed} records"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=None)
        return once.purge(grace=grace, progress=lambda gone: bar.update(task, completed=gone))
