"""`oncekey dead-letters`: list messages of an inbox that failed for good, and free them."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from msgspec.structs import asdict

from oncekey import OncekeyError
from oncekey.cli.errors import NOTHING, STORE, CommandError
from oncekey.cli.options import Json, Redact, StoreUrl, Yes, chosen_store
from oncekey.cli.output import console, print_json
from oncekey.inspection.text import iso, length, now, printable
from oncekey.observe.redaction import hashed

if TYPE_CHECKING:
    from oncekey.messages.dead_letters import DeadMessage

_FREED: Final = "is free"
_CHANGED: Final = "has changed meanwhile"
_NOT_KEPT: Final = "is free, but it was not kept, so that it cannot be sent"
_SENT: Final = "is free and was sent"


def dead_letters(
    *,
    ctx: typer.Context,
    key: Annotated[
        str, typer.Argument(metavar="[KEY]", help="Only the message with this key.")
    ] = "",
    consumer: Annotated[
        str, typer.Option(metavar="NAME", help="Only messages of this consumer.")
    ] = "",
    free: Annotated[
        bool,
        typer.Option("--free", help="Free them: the next delivery is processed, as if new."),
    ] = False,
    resend: Annotated[
        str,
        typer.Option(metavar="URL", help="Free them and publish them again, to this broker."),
    ] = "",
    to: Annotated[
        str, typer.Option(metavar="NAME", help="The queue, subject or stream for --resend.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 100,
    redact: Redact = False,
    yes: Yes = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """List messages of an inbox that failed for good, free them, and send them again."""
    from oncekey.messages.dead_letters import dead_letters as read

    chosen_store(ctx, store)
    letters = read(ctx.obj.url, consumer=consumer, key=key, limit=limit)
    if letters is None:
        msg = (
            "the store has no inbox; give the URL of its database, or see `oncekey outbox` for "
            "messages that could not be sent"
        )
        raise CommandError(msg, NOTHING)
    if key and not letters:
        raise CommandError(f"no message with the key {key!r} has failed for good", NOTHING)
    if bool(resend) != bool(to):
        raise typer.BadParameter("--resend and --to belong together")
    free = free or bool(resend)
    if free and letters and not yes and sys.stdin.isatty():
        count = "1 message" if len(letters) == 1 else f"{len(letters)} messages"
        typer.confirm(f"Free {count}, so that a delivery is processed again?", abort=True, err=True)
    for letter in letters:
        done = _freed(ctx.obj.url, letter, resend, to) if free else ""
        if as_json:
            print_json(_fields(letter, done, redact=redact))
        else:
            typer.echo(_line(letter, done, redact=redact))
    if not letters and not as_json:
        console(error=True).print("no dead letters")


def _freed(url: str, letter: "DeadMessage", broker: str, to: str) -> str:
    """Free the message, and publish it if there is a broker. Return what was done.

    It is freed first: a consumer would acknowledge a dead message without processing it.
    """
    from oncekey.messages.dead_letters import free_dead_letter, publish

    if not free_dead_letter(url, letter):
        return _CHANGED
    if not broker:
        return _FREED
    if letter.letter is None:
        return _NOT_KEPT
    try:
        asyncio.run(publish(letter.letter, broker, to))
    except OncekeyError:
        raise
    except Exception as error:
        msg = f"the broker did not take {letter.key!r}, which is free now; send it again: {error!r}"
        raise CommandError(msg, STORE) from error
    return _SENT


def _fields(letter: "DeadMessage", done: str, *, redact: bool) -> dict[str, Any]:
    fields = asdict(letter)
    fields["kept"] = fields.pop("letter") is not None
    for name in ("first_seen", "died", "expires"):
        fields[name] = iso(fields[name])
    del fields["token"]
    if redact:
        del fields["message_id"], fields["error"]
        fields["key"] = hashed(letter.key)
    return fields | {"done": done} if done else fields


def _line(letter: "DeadMessage", done: str, *, redact: bool) -> str:
    name = f"{letter.consumer}/{hashed(letter.key) if redact else letter.key}"
    if done:
        return printable(f"{name} {done}")
    words = [
        name,
        letter.message_type or "-",
        f"{letter.attempts} attempt{'' if letter.attempts == 1 else 's'}",
        f"first seen {length(now() - letter.first_seen)} ago",
        f"{'dead' if letter.dead else 'free'} for {length(now() - letter.died)}",
    ]
    if not redact:
        words.append(letter.error)
    return printable("  ".join(words))
