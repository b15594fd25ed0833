"""`oncekey ls`: which records there are. Results are never printed."""

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, cast

import typer

from oncekey.cli.as_json import fields_of, print_json
from oncekey.cli.opening import records
from oncekey.cli.options import Json, StoreUrl, scope_of
from oncekey.cli.render import console, listing
from oncekey.cli.times import now

if TYPE_CHECKING:
    from oncekey.record import Status


class Wanted(StrEnum):
    """The statuses, as typer shows and checks them."""

    running = "running"
    completed = "completed"
    failed = "failed"
    released = "released"
    held = "held"


def ls(  # noqa: PLR0913 - each is an option of the command
    *,
    ctx: typer.Context,
    scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPE", help="Only this scope; '' for keys without a scope."),
    ] = None,
    status: Annotated[Wanted | None, typer.Option(help="Only records with this status.")] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="At most so many; 0: all.")] = 100,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """List the records, in the order of scope and key."""
    with records(ctx, store) as once:
        only = cast("Status | None", status)
        found = once.scan(status=only)
        if scope is not None:
            found = once.scan(scope=scope_of(scope), status=only)
        wanted = islice(found, limit or None)
        if as_json:
            for record in wanted:
                print_json(fields_of(record))
        elif listed := list(wanted):
            listing(listed, now())
        else:
            console(error=True).print("no records")
        if limit and next(found, None) is not None:
            console(error=True).print(f"there are more than {limit}; --limit 0 lists all")
