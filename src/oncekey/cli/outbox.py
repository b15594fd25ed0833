"""`oncekey outbox`: what waits in an outbox, and decisions about its dead letters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec.structs import asdict

from oncekey.cli.errors import NOTHING, WRONG, CommandError
from oncekey.cli.options import Json, Redact, StoreUrl, Yes, chosen_store
from oncekey.cli.output import print_json
from oncekey.inspection.text import SECOND, iso, length, now, printable
from oncekey.observe.redaction import hashed
from oncekey.outbox.lookup import existing_outbox

if TYPE_CHECKING:
    from oncekey.outbox import DeadLetter, Figures, Outbox, Waiting

_CHANGED: Final = "has changed meanwhile"
_DOUBT: Final = (
    "a try of {0} ended without an answer: the target may have it, and consumers take the edited "
    "message for another one"
)


def outbox(
    *,
    ctx: typer.Context,
    id: Annotated[  # noqa: A002 - its name in messages
        str, typer.Argument(metavar="[ID]", help="Only the dead message with this id.")
    ] = "",
    waiting: Annotated[
        bool, typer.Option("--waiting", help="List what waits instead, the oldest first.")
    ] = False,
    revive: Annotated[
        bool, typer.Option("--revive", help="Let relays try the dead messages again.")
    ] = False,
    drop: Annotated[
        bool, typer.Option("--drop", help="Delete the dead messages; they are never sent.")
    ] = False,
    body: Annotated[
        str,
        typer.Option(metavar="FILE", help="Send the message with this body; - for the input."),
    ] = "",
    to: Annotated[str, typer.Option(metavar="NAME", help="Send the message to here instead.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 100,
    redact: Redact = False,
    yes: Yes = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Say what waits in an outbox; revive, edit or drop messages that failed for good."""
    act = _act(id, revive=revive, drop=drop, edit=bool(body or to))
    if waiting and (id or act):
        raise CommandError("--waiting lists messages that are not dead, and changes nothing", WRONG)
    chosen_store(ctx, store)
    with existing_outbox(ctx.obj.url) as found:
        if found is None:
            raise CommandError("the store has no outbox; give the URL of its database", NOTHING)
        if not id:
            _print_figures(found.figures(), as_json=as_json)
        if waiting:
            for one in found.waiting(limit=limit):
                _print_waiting(one, redact=redact, as_json=as_json)
            return
        letters = found.dead_letters(id, limit=limit)
        if id and not letters:
            raise CommandError(f"no dead message has the id {id!r}", NOTHING)
        _ask(act, letters, yes=yes)
        for letter in letters:
            done = _decided(found, letter, act, body, to)
            _print_letter(letter, done, redact=redact, as_json=as_json)


def _act(id: str, **asked: bool) -> str:  # noqa: A002 - its name in messages
    """Return what is to be done to dead messages; empty for nothing."""
    acts = [name for name, wanted in asked.items() if wanted]
    if len(acts) > 1:
        raise CommandError("--revive, --drop and an edit exclude each other", WRONG)
    if acts == ["edit"] and not id:
        raise CommandError("say which message is to be edited: oncekey outbox ID --to ...", WRONG)
    return acts[0] if acts else ""


def _ask(act: str, letters: list[DeadLetter], *, yes: bool) -> None:
    """Ask before something is done on a terminal. Say when an edited message may arrive twice."""
    if act == "edit" and letters[0].unknown:
        typer.echo(printable(_DOUBT.format(letters[0].message.id)), err=True)
    if act and letters and not yes and sys.stdin.isatty():
        count = "1 message" if len(letters) == 1 else f"{len(letters)} messages"
        typer.confirm(f"{act.capitalize()} {count}?", abort=True, err=True)


def _decided(outbox: Outbox, letter: DeadLetter, act: str, body: str, to: str) -> str:
    """Do to the dead letter what was asked. Return what was done, in words."""
    if not act:
        return ""
    if act == "revive":
        return "is tried again" if outbox.revive(letter) else _CHANGED
    if act == "drop":
        return "is deleted" if outbox.drop(letter) else _CHANGED
    from oncekey.outbox import Message

    old = letter.message
    edited = Message(
        type=old.type,
        attributes=old.attributes,
        body=_content(body) if body else old.body,
    )
    new = outbox.edit(letter, edited, to=to or None)
    return _CHANGED if new is None else f"is sent as {new}"


def _content(body: str) -> bytes:
    if body == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(body).read_bytes()
    except OSError as error:
        raise CommandError(f"{body} cannot be read ({error.strerror})", WRONG) from None


def _print_figures(figures: Figures, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(figures) | {"oldest": round(figures.oldest, 3)})
        return
    age = f", the oldest for {length(round(figures.oldest * SECOND))}" if figures.pending else ""
    wait = "waits" if figures.pending == 1 else "wait"
    typer.echo(f"{figures.pending:,} {wait}{age}; {figures.dead:,} dead; {figures.sent:,} sent")


def _print_letter(letter: DeadLetter, done: str, *, redact: bool, as_json: bool) -> None:
    message = letter.message
    created, died = round(letter.created * SECOND), round(letter.died * SECOND)
    name = f"{message.to}/{_name(message.id, redact=redact)}"
    if as_json:
        fields = _fields(message, letter.error, redact=redact)
        fields |= {"unknown": letter.unknown, "created": iso(created), "died": iso(died)}
        print_json(fields | ({"done": done} if done else {}))
    elif done:
        typer.echo(printable(f"{name} {done}"))
    else:
        words = [name, message.type or "-", _tries(message.tries), f"put {_ago(created)}"]
        words.append(f"dead for {length(now() - died)}")
        if letter.unknown:
            words.append("may have arrived")
        typer.echo(printable("  ".join(words if redact else [*words, letter.error])))


def _print_waiting(one: Waiting, *, redact: bool, as_json: bool) -> None:
    created = round(one.created * SECOND)
    if as_json:
        fields = _fields(one, one.error, redact=redact)
        print_json(fields | {"unknown": one.unknown, "created": iso(created)})
        return
    words = [f"{one.to}/{_name(one.id, redact=redact)}", one.type or "-"]
    words += [_tries(one.tries), f"put {_ago(created)}"]
    typer.echo(printable("  ".join(words if redact or not one.error else [*words, one.error])))


def _fields(one: Any, error: str, *, redact: bool) -> dict[str, Any]:
    key = one.key if one.key is None or not redact else hashed(one.key)
    fields = {"id": _name(one.id, redact=redact), "to": one.to, "key": key, "type": one.type}
    return fields | {"tries": one.tries} | ({} if redact else {"error": error})


def _name(id: str, *, redact: bool) -> str:  # noqa: A002 - its name in messages
    return hashed(id) if redact else id


def _ago(at: int) -> str:
    return f"{length(now() - at)} ago"


def _tries(count: int) -> str:
    return f"{count} {'try' if count == 1 else 'tries'}"
