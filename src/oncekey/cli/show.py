"""`oncekey show`: print everything about one record, and what can be done next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from oncekey import Record, UnreadableError
from oncekey.cli.keys import name_of, named_record
from oncekey.cli.options import ChosenStore, Json, Key, Redact, Scope, StoreUrl, opened_records
from oncekey.cli.output import COLOURS, console, fields_of, print_json
from oncekey.core.record import FORMAT
from oncekey.inspection.listing import audit_of, time_of
from oncekey.inspection.text import (
    as_text,
    beside,
    brief,
    done_by_hand,
    iso,
    meaning,
    moment,
    notes_and_steps,
    printable,
    shortened,
    status_word,
)
from oncekey.inspection.timeline import timeline
from oncekey.stores.url import has_secrets

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH: Final = 11
_SHORT: Final = 200
_LONG: Final = 2000


def advice(record: Record, chosen: ChosenStore, present: int) -> Iterator[str]:
    """Yield what the record means, then the commands to copy, each on a line of its own."""
    yield meaning(record, present)
    if record.version > FORMAT:
        return
    for purpose, command in _commands(record):
        yield f"{purpose}:"
        yield f"  {_typed(record, chosen, *command)}"


def _commands(record: Record) -> Iterator[tuple[str, tuple[str, ...]]]:
    if record.status == "held":
        yield "It was done, and this is its result", ("resolve", "--result", "JSON")
        yield "It failed for good", ("resolve", "--error", "TEXT")
        yield "It was not done, and may run again", ("resolve", "--retry")
    elif record.status == "running":
        yield "To free the key all the same (its attempt is lost)", ("forget", "--force")
    elif record.status in ("completed", "failed"):
        yield "To let it run again", ("forget",)


def _typed(record: Record, chosen: ChosenStore, command: str, *options: str) -> str:
    """Return the command quoted for a shell. A key that looks like an option goes last."""
    where: list[str] = []
    if chosen.typed:
        where = ["--store", "URL" if has_secrets(chosen.url) else chosen.url]
    name = name_of(record)
    named = [*where, *options, "--", name] if name.startswith("-") else [name, *where, *options]
    return shlex.join(["oncekey", command, *named])


def life(record: Record, present: int, *, redact: bool = False) -> Iterator[tuple[int, str]]:
    """Yield what happened to the record and when; the time is 0 for notes, which have none."""
    for kind, at in timeline(record):
        match kind:
            case "claimed":
                yield at, "first claimed"
            case "started":
                yield at, f"attempt {record.attempt} started"
            case "noted":
                yield from ((at, text) for text in _noted(record, redact=redact))
            case "unclear":
                yield at, "ended without a definite outcome"
            case "renewed":
                yield at, "lease renewed, or a note written"
            case "lease":
                yield at, "lease over" if at <= present else "lease ends, unless renewed"
            case "ended":
                yield at, _ended(record, at, redact=redact)
            case "expires":
                yield at, "expires"


def _ended(record: Record, at: int, *, redact: bool) -> str:
    what = printable(record.status)
    if record.started and not record.uncertain:
        what = f"{what} after {brief(at - record.started)}"
    if record.error and not redact:
        words = printable(record.failure) or "the failure cannot be read"
        what = f"{what}: {shortened(words, _LONG)}"
    return what


def _noted(record: Record, *, redact: bool) -> Iterator[str]:
    notes, steps, unread = notes_and_steps(record)
    if unread:
        yield "the notes cannot be read" if redact else printable(unread)
    for name, value in notes.items():
        yield f"noted {printable(name)}" + ("" if redact else f" = {as_text(value, _SHORT)}")
    for step in steps:
        yield f"step {printable(step)} done"


_WHEN: Final = 27
_AGO: Final = 10


def show(
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
    with opened_records(ctx, store) as once:
        record = named_record(once, key, scope)
        by_hand = audit_of(once.store, record)
        present = time_of(once.store)
    if as_json:
        size = None if record.result is None else len(record.result)
        fields = fields_of(record, size, present, result=result, redact=redact)
        fields["by_hand"] = [
            {"at": iso(one.at), "done": done_by_hand(one, personal=not redact)} for one in by_hand
        ]
        print_json(fields)
        return
    out = console()
    word = status_word(record, present)
    status = Text(printable(word), style=COLOURS.get(word, ""))
    out.print(Text.assemble(name_of(record, redact=redact), "  ", status), soft_wrap=True)
    for name, value in _facts(record, result=result, redact=redact):
        line = Text.assemble("  ", (name.ljust(_WIDTH), "dim"), "  ", value)
        out.print(line, soft_wrap=True)
    out.print()
    hands = [(one.at, printable(done_by_hand(one, personal=not redact))) for one in by_hand]
    _print_life(out, [*life(record, present, redact=redact), *reversed(hands)], present)
    if not redact:
        out.print()
        for sentence in advice(record, ctx.obj, present):
            out.print(Text(sentence), soft_wrap=True)


def _print_life(out: Console, lines: list[tuple[int, str]], present: int) -> None:
    for at, what in lines:
        when = moment(at, milliseconds=True) if at else ""
        ago = beside(at, present) if at else ""
        line = Text.assemble("  ", (f"{when:<{_WHEN}}  {ago:<{_AGO}}", "dim"), "  ", what)
        out.print(line, soft_wrap=True)


def _facts(record: Record, *, result: bool, redact: bool) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each fact that the record has."""
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
        return as_text(record.value, _LONG)
    except UnreadableError as error:
        return printable(str(error))
