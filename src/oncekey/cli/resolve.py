"""`oncekey resolve`: say how a held record ended."""

import sys
from typing import Annotated, Any

import msgspec
import typer

from oncekey import Record
from oncekey.cli.errors import NOTHING, WRONG, CommandError
from oncekey.cli.keys import name_of, named_record
from oncekey.cli.options import Json, Key, Reason, Scope, StoreUrl, Yes, opened_records, who
from oncekey.cli.output import print_json
from oncekey.inspection.actions import ending
from oncekey.inspection.text import printable


def resolve(
    *,
    ctx: typer.Context,
    key: Key,
    result: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="It was done; this is what it returned."),
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="It failed for good, with this error.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="It was not done; the next call runs it.")
    ] = False,
    scope: Scope = None,
    reason: Reason = "",
    yes: Yes = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Say how a held record ended.

    Exactly one of --result, --error and --retry says it.
    """
    said = ending_of(result, error, retry=retry)
    with opened_records(ctx, store) as once:
        record = named_record(once, key, scope)
        if record.status != "held":
            msg = f"{name_of(record)!r} is {record.status}, not held; there is nothing to resolve"
            raise CommandError(msg, NOTHING)
        if not yes and sys.stdin.isatty():
            _ask(record, said)
        if not once.resolve(record.key, scope=record.scope, by=who(), reason=reason, **said):
            msg = f"{name_of(record)!r} is not held any more; look again"
            raise CommandError(msg, NOTHING)
        after = once.get(record.key, scope=record.scope)
    status = "resolved" if after is None else after.status
    if as_json:
        where = {"scope": record.scope, "key": record.key}
        print_json({"resolved": name_of(record), **where, "status": status})
    else:
        typer.echo(f"{name_of(record)!r} is {status}")


def _ask(record: Record, said: dict[str, Any]) -> None:
    """Ask the person to confirm. Raise `typer.Abort` if they say no."""
    words = {
        "result": "was done, and duplicates get this result",
        "error": "failed for good, and duplicates hear that",
        "retry": "was not done, and the next call runs it",
    }
    (how,) = said
    typer.confirm(printable(f"{name_of(record)!r} {words[how]}?"), abort=True, err=True)


def ending_of(result: str | None, error: str | None, *, retry: bool) -> dict[str, Any]:
    """Return the arguments for `Once.resolve`. Raise `CommandError` unless exactly one is given."""
    if sum((result is not None, error is not None, retry)) != 1:
        msg = "say how it ended with exactly one of --result, --error and --retry"
        raise CommandError(msg, WRONG)
    if retry:
        return ending("retry")
    if error is not None:
        return ending("error", error)
    try:
        return ending("result", result or "")
    except msgspec.DecodeError as problem:
        msg = f"--result is not JSON: {problem}; a text needs quotes of its own: '\"done\"'"
        raise CommandError(msg, WRONG) from None
