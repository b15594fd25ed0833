"""`oncekey audit`: tell who changed records by hand, when and why."""

from typing import Annotated, Any

import typer

from oncekey.cli.errors import NOTHING, CommandError
from oncekey.cli.keys import parse_key
from oncekey.cli.options import Json, Redact, StoreUrl, complete_key, opened_records
from oncekey.cli.output import console, print_json
from oncekey.core.audit import KEPT, AuditEntry
from oncekey.core.key import stored_key
from oncekey.inspection.listing import read_audit
from oncekey.inspection.text import done_by_hand, iso, moment, printable
from oncekey.observe.redaction import hashed


def audit(
    *,
    ctx: typer.Context,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]", help="Only what was done to this key.", autocompletion=complete_key
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="At most so many; 0: all.")] = 100,
    redact: Redact = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Tell who resolved, forgot or purged records by hand, when and why."""
    place = None if key is None else parse_key(key, None)
    with opened_records(ctx, store) as once:
        entries = read_audit(once.store, KEPT if place or not limit else limit)
    if entries is None:
        raise CommandError("this kind of store keeps no audit trail", NOTHING)
    if place is not None:
        entries = [entry for entry in entries if (entry.scope, entry.key) == place]
    for entry in entries[: limit or None]:
        if as_json:
            print_json(_fields(entry, redact=redact))
        else:
            typer.echo(_line(entry, redact=redact))
    if not entries and not as_json:
        console(error=True).print("nothing was done by hand")


def _name(entry: AuditEntry, *, redact: bool) -> str:
    if not entry.key:
        return f"{entry.count:,} record{'' if entry.count == 1 else 's'}"
    name = stored_key(entry.scope, entry.key)
    return hashed(name) if redact else name


def _line(entry: AuditEntry, *, redact: bool) -> str:
    said = done_by_hand(entry, personal=not redact)
    return printable(f"{moment(entry.at)}  {_name(entry, redact=redact)}  {said}")


def _fields(entry: AuditEntry, *, redact: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "at": iso(entry.at),
        "action": entry.action,
        "name": _name(entry, redact=redact) if entry.key else None,
        "was": entry.was or None,
        "became": entry.became or None,
        "count": entry.count,
    }
    return fields if redact else {**fields, "by": entry.by, "reason": entry.reason}
