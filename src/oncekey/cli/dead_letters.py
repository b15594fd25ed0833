"""`oncekey dead-letters`: list messages of an inbox that failed for good, and free them."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from oncekey.cli.errors import NOTHING, CommandError
from oncekey.cli.options import Json, Redact, StoreUrl, Yes, chosen_store
from oncekey.cli.output import console, print_json
from oncekey.inspection.text import iso, length, now, printable
from oncekey.observe.redaction import hashed

if TYPE_CHECKING:
    from oncekey.messages.dead_letters import DeadMessage


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
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 100,
    redact: Redact = False,
    yes: Yes = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """List messages that failed for good, and free them."""
    from oncekey.messages.dead_letters import dead_letters as read
    from oncekey.messages.dead_letters import free_dead_letter

    chosen_store(ctx, store)
    letters = read(ctx.obj.url, consumer=consumer, key=key, limit=limit)
    if letters is None:
        raise CommandError("the store has no inbox; give the URL of its database", NOTHING)
    if key and not letters:
        raise CommandError(f"no message with the key {key!r} has failed for good", NOTHING)
    if free and letters and not yes and sys.stdin.isatty():
        count = "1 message" if len(letters) == 1 else f"{len(letters)} messages"
        typer.confirm(f"Free {count}, so that a delivery is processed again?", abort=True, err=True)
    for letter in letters:
        freed = free_dead_letter(ctx.obj.url, letter) if free else None
        if as_json:
            print_json(_fields(letter, freed, redact=redact))
        else:
            typer.echo(_line(letter, freed, redact=redact))
    if not letters and not as_json:
        console(error=True).print("no dead letters")


def _fields(letter: "DeadMessage", freed: bool | None, *, redact: bool) -> dict[str, Any]:  # noqa: FBT001 - None: not asked
    fields = asdict(letter)
    for name in ("first_seen", "died", "expires"):
        fields[name] = iso(fields[name])
    del fields["token"]
    if redact:
        del fields["message_id"], fields["error"]
        fields["key"] = hashed(letter.key)
    return fields if freed is None else fields | {"freed": freed}


def _line(letter: "DeadMessage", freed: bool | None, *, redact: bool) -> str:  # noqa: FBT001 - as above
    name = f"{letter.consumer}/{hashed(letter.key) if redact else letter.key}"
    if freed is not None:
        return printable(f"{name} is free" if freed else f"{name} has changed meanwhile")
    words = [
        name,
        letter.message_type or "-",
        f"{letter.attempts} attempt{'' if letter.attempts == 1 else 's'}",
        f"first seen {length(now() - letter.first_seen)} ago",
        f"dead for {length(now() - letter.died)}",
    ]
    if not redact:
        words.append(letter.error)
    return printable("  ".join(words))
