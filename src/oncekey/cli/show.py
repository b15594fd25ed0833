"""`oncekey show`: everything about one record, and what can be done next."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.text import Text

from oncekey import Record, UnreadableError
from oncekey.cli.advice import advice
from oncekey.cli.as_json import fields_of, print_json
from oncekey.cli.finding import found
from oncekey.cli.opening import records
from oncekey.cli.options import Json, Key, Scope, StoreUrl, scope_of
from oncekey.cli.render import COLOURS, console
from oncekey.cli.text import LONG, SHORT, as_text, printable, shortened
from oncekey.cli.times import both, now

_WIDTH = 11


def show(  # noqa: PLR0913 - each is an option of the command
    *,
    ctx: typer.Context,
    key: Key,
    scope: Scope = None,
    result: Annotated[
        bool, typer.Option("--result", help="Print the kept result too; it may hold secrets.")
    ] = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Show everything about one record, and what can be done next."""
    with records(ctx, store) as once:
        record = found(once, scope_of(scope), key)
    if as_json:
        print_json(fields_of(record, result=result))
        return
    out = console()
    status = Text(record.status, style=COLOURS.get(record.status, ""))
    out.print(Text.assemble(printable(record.key), "  ", status), soft_wrap=True)
    for name, value in _lines(record, now(), result=result):
        line = Text.assemble("  ", (name.ljust(_WIDTH), "dim"), "  ", value)
        out.print(line, soft_wrap=True)
    out.print()
    for sentence in advice(record, ctx.obj, now()):
        out.print(Text(sentence), soft_wrap=True)


def _lines(record: Record, present: int, *, result: bool) -> Iterator[tuple[str, str]]:
    """The facts of the record, each with its name; those that say nothing are left out."""
    yield "scope", printable(record.scope or "none")
    if record.label:
        yield "label", printable(record.label)
    if record.reference:
        yield "reference", printable(record.reference)
    yield "attempt", str(record.attempt)
    if record.uncertain:
        yield "uncertain", "an attempt ended without a definite outcome"
    yield "created", both(record.created, present)
    yield "started", both(record.started, present)
    yield "updated", both(record.updated, present)
    if record.finished:
        yield "finished", both(record.finished, present)
    if record.status == "running":
        yield "lease ends", both(record.lease_end, present)
    yield "expires", both(record.expires, present)
    yield "fingerprint", printable(record.fingerprint or "none")
    yield "token", str(record.token)
    yield from _noted(record)
    if record.error:
        words = printable(record.failure) or "it cannot be read"
        yield "failure", shortened(words, LONG)
    if record.status == "completed":
        yield "result", _result(record, shown=result)


def _noted(record: Record) -> Iterator[tuple[str, str]]:
    try:
        notes, steps = record.notes, record.steps
    except UnreadableError as error:
        yield "notes", printable(str(error))
        return
    for name, value in notes.items():
        yield "note", f"{printable(name)} = {as_text(value, SHORT)}"
    for step in steps:
        yield "step done", printable(step)


def _result(record: Record, *, shown: bool) -> str:
    if record.result is None:
        return "not kept"
    if not shown:
        return f"kept, {len(record.result)} bytes; --result prints it"
    try:
        return as_text(record.value, LONG)
    except UnreadableError as error:
        return printable(str(error))
