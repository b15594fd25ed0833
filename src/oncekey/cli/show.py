"""`oncekey show`: everything about one record, and what can be done next."""

from collections.abc import Iterator
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from oncekey import Record, UnreadableError
from oncekey.cli.advice import advice
from oncekey.cli.as_json import fields_of, print_json
from oncekey.cli.finding import found
from oncekey.cli.names import name_of
from oncekey.cli.opening import records
from oncekey.cli.options import Json, Key, Redact, Scope, StoreUrl
from oncekey.cli.render import COLOURS, console
from oncekey.cli.text import LONG, as_text, printable
from oncekey.cli.timeline import timeline
from oncekey.cli.times import beside, exactly, now

_WIDTH: Final = 11
_WHEN: Final = 27
_AGO: Final = 10


def show(  # noqa: PLR0913 - each is an option of the command
    *,
    ctx: typer.Context,
    key: Key,
    scope: Scope = None,
    result: Annotated[
        bool, typer.Option("--result", help="Print the kept result too; it may hold secrets.")
    ] = False,
    redact: Redact = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Show one record: its life, and what can be done next."""
    with records(ctx, store) as once:
        record = found(once, key, scope)
    if as_json:
        size = None if record.result is None else len(record.result)
        print_json(fields_of(record, size, result=result, redact=redact))
        return
    out, present = console(), now()
    status = Text(printable(record.status), style=COLOURS.get(record.status, ""))
    out.print(Text.assemble(name_of(record, redact=redact), "  ", status), soft_wrap=True)
    for name, value in _facts(record, result=result, redact=redact):
        line = Text.assemble("  ", (name.ljust(_WIDTH), "dim"), "  ", value)
        out.print(line, soft_wrap=True)
    out.print()
    _print_life(out, record, present, redact=redact)
    if not redact:
        out.print()
        for sentence in advice(record, ctx.obj, present):
            out.print(Text(sentence), soft_wrap=True)


def _print_life(out: Console, record: Record, present: int, *, redact: bool) -> None:
    for at, what in timeline(record, present, redact=redact):
        when = exactly(at) if at else ""
        ago = beside(at, present) if at else ""
        line = Text.assemble("  ", (f"{when:<{_WHEN}}  {ago:<{_AGO}}", "dim"), "  ", what)
        out.print(line, soft_wrap=True)


def _facts(record: Record, *, result: bool, redact: bool) -> Iterator[tuple[str, str]]:
    """The facts of the record, each with its name; those that say nothing are left out."""
    if record.label:
        yield "label", printable(record.label)
    if record.reference and not redact:
        yield "reference", printable(record.reference)
    yield "attempt", str(record.attempt)
    if record.uncertain:
        yield "uncertain", "an attempt ended without a definite outcome"
    yield "fingerprint", printable(record.fingerprint or "none")
    yield "token", str(record.token)
    if record.status == "completed":
        yield "result", _result(record, shown=result and not redact)
    if not record.expires:
        yield "expires", "never"


def _result(record: Record, *, shown: bool) -> str:
    if record.result is None:
        return "not kept"
    if not shown:
        return f"kept, {len(record.result)} bytes; --result prints it"
    try:
        return as_text(record.value, LONG)
    except UnreadableError as error:
        return printable(str(error))
