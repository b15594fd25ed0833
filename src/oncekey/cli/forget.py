"""`oncekey forget`: delete the record of a key, so that it may run again."""

import sys
from typing import Annotated

import typer

from oncekey import InProgressError, Once, OutcomeUnknownError, Record
from oncekey.cli.errors import NOTHING, REFUSED, CommandError
from oncekey.cli.keys import name_of, named_record
from oncekey.cli.options import Json, Key, Reason, Scope, StoreUrl, Yes, opened_records, who
from oncekey.cli.output import print_json
from oncekey.inspection.actions import needs_force, state_of
from oncekey.inspection.listing import time_of
from oncekey.inspection.text import length, printable, status_word


def forget(
    *,
    ctx: typer.Context,
    key: Key,
    scope: Scope = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it is running (its attempt is lost) or held.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Forget a key, so that it may run again."""
    with opened_records(ctx, store) as once:
        record, present = named_record(once, key, scope), time_of(once.store)
        if not force and needs_force(record):
            raise _refusal(record, present)
        if not yes and sys.stdin.isatty():
            _ask(once, record, present)
        try:
            forgotten = once.forget(
                record.key, scope=record.scope, force=force, by=who(), reason=reason
            )
        except (InProgressError, OutcomeUnknownError):  # its status has changed since we looked
            raise _refusal(named_record(once, record.key, record.scope or ""), present) from None
    if not forgotten:
        raise _changed(record)
    if as_json:
        print_json({"forgotten": name_of(record), "scope": record.scope, "key": record.key})
    else:
        typer.echo(f"{name_of(record)!r} is forgotten")


def _refusal(record: Record, present: int) -> CommandError:
    name = name_of(record)
    if record.status == "held":
        msg = f"{name!r} is held; resolve it, or forget it with --force"
    else:
        word = status_word(record, present)
        msg = f"{name!r} is {word}; --force forgets it, and its attempt is lost"
    return CommandError(msg, REFUSED)


def _ask(once: Once, record: Record, now: int) -> None:
    """Ask the person to confirm. Raise `CommandError` if the record has changed since."""
    word, age = status_word(record, now), length(now - record.created)
    question = f"Forget {name_of(record)!r} ({word}, {age} old)? It may then run again"
    typer.confirm(printable(question), abort=True, err=True)
    present = once.get(record.key, scope=record.scope)
    if present is None or state_of(present) != state_of(record):
        raise _changed(record)


def _changed(record: Record) -> CommandError:
    return CommandError(f"{name_of(record)!r} has changed in the meantime; look again", NOTHING)
