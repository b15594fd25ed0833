"""`oncekey resolve`: a person says how a held record ended."""

from typing import Annotated, Any

import msgspec
import typer

from oncekey.cli.exits import NOTHING, WRONG, CommandError
from oncekey.cli.finding import found, named
from oncekey.cli.opening import records
from oncekey.cli.options import Key, Scope, StoreUrl, scope_of


class ResolvedByHandError(Exception):
    """The failure that a person named; a duplicate hears its words."""


def resolve(  # noqa: PLR0913 - each is an option of the command
    *,
    ctx: typer.Context,
    key: Key,
    result: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="It was done; this is what it returned."),
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="It failed for good; these are the words.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="It was not done; the next call runs it.")
    ] = False,
    scope: Scope = None,
    store: StoreUrl = None,
) -> None:
    """Say how a held record ended.

    Exactly one of --result, --error and --retry says it.
    """
    ending = _ending(result, error, retry=retry)
    with records(ctx, store) as once:
        record = found(once, scope_of(scope), key)
        if record.status != "held":
            msg = f"{named(record)} is {record.status}, not held; there is nothing to resolve"
            raise CommandError(msg, NOTHING)
        if not once.resolve(key, scope=record.scope, **ending):
            msg = f"{named(record)} is not held any more; look again"
            raise CommandError(msg, NOTHING)
        after = once.get(key, scope=record.scope)
    status = "resolved" if after is None else after.status
    typer.echo(f"{named(record)} is {status}")


def _ending(result: str | None, error: str | None, *, retry: bool) -> dict[str, Any]:
    if sum((result is not None, error is not None, retry)) != 1:
        msg = "say how it ended with exactly one of --result, --error and --retry"
        raise CommandError(msg, WRONG)
    if retry:
        return {"retry": True}
    if error is not None:
        return {"error": ResolvedByHandError(error)}
    try:
        return {"result": msgspec.json.decode(result or "")}
    except msgspec.DecodeError as problem:
        msg = f"--result is not JSON: {problem}; a text needs quotes of its own: '\"done\"'"
        raise CommandError(msg, WRONG) from None
