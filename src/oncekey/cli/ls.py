"""`oncekey ls`: list the records. Results are never printed."""

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from oncekey.cli.options import Json, Redact, StoreUrl, opened_records
from oncekey.cli.output import Listing, console, fields_of, print_json
from oncekey.core.key import checked_scope
from oncekey.core.record import Status
from oncekey.inspection.listing import fill_page
from oncekey.policy import microseconds, seconds
from oncekey.stores import Store
from oncekey.stores.browse import RecordPage, RecordQuery

_PATIENCE: Final = 10.0
"""How many seconds one page may take to find matching records."""
_AT_ONCE: Final = 1000

Show = Callable[[RecordPage], None]


class Wanted(StrEnum):
    """The statuses as an enum, which typer shows in the help and checks."""

    running = "running"
    completed = "completed"
    failed = "failed"
    released = "released"
    held = "held"


def ls(
    *,
    ctx: typer.Context,
    status: Annotated[Wanted | None, typer.Option(help="Only records with this status.")] = None,
    scope: Annotated[
        str | None,
        typer.Option(metavar="SCOPE", help="Only this scope; '' for keys without a scope."),
    ] = None,
    label: Annotated[str, typer.Option(metavar="LABEL", help="Only records with this label.")] = "",
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Only keys that begin so, in any scope.")
    ] = "",
    older: Annotated[
        str, typer.Option(metavar="TIME", help="Only records that are older: 30min, 12h, 7d.")
    ] = "0",
    newer: Annotated[
        str, typer.Option(metavar="TIME", help="Only records that are newer: 30min, 12h, 7d.")
    ] = "0",
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="At most so many; 0: all.")] = 100,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on where another page has ended.")
    ] = None,
    redact: Redact = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """List the records, the newest first where the store knows."""
    ask = RecordQuery(
        status=status_of(status),
        scope=checked_scope(scope or None),
        any_scope=scope is None,
        label=label,
        prefix=prefix,
        older=age_of(older, "--older"),
        newer=age_of(newer, "--newer"),
        after=after,
        limit=limit or _AT_ONCE,
    )
    shown = _as_json(redact=redact) if as_json else _as_columns(redact=redact)
    with opened_records(ctx, store) as once:
        last, seen = _listed(once.store, ask, shown, every=not limit)
    sys.stdout.flush()  # so that records come first if both streams go to one file
    if last.after is not None:
        console(error=True).print(_more(last, seen, limit), soft_wrap=True)
    elif not seen and not as_json:
        console(error=True).print("no records")


def _listed(store: Store, ask: RecordQuery, shown: Show, *, every: bool) -> tuple[RecordPage, int]:
    """Show the pages. Return the last page that was shown and the number of records."""
    seen = 0
    while True:
        page = fill_page(store, ask, _PATIENCE)
        shown(page)
        seen += len(page.records)
        if page.after is None or not every:
            return page, seen
        ask = replace(ask, after=page.after)


def _as_json(*, redact: bool) -> Show:
    def show(page: RecordPage) -> None:
        for record, size in zip(page.records, page.sizes, strict=True):
            print_json(fields_of(record, size, page.now, redact=redact))

    return show


def _as_columns(*, redact: bool) -> Show:
    listing = Listing(redact=redact)

    def show(page: RecordPage) -> None:
        if page.records:
            listing.page(page.records, page.now)

    return show


def _more(page: RecordPage, seen: int, limit: int) -> str:
    """Return the sentence that says how to see more records."""
    if seen < limit:
        found = f"looked for {_PATIENCE:g} s and found {seen}; not all were looked at"
    else:
        found = f"there are more than {limit}" + ("" if page.newest_first else ", in no order")
    return f"{found}; go on with --after {page.after}, or --limit 0 for all"


def status_of(typed: Wanted | None) -> Status | None:
    """Return the status that was typed, or None if there was none."""
    return None if typed is None else typed.value


def age_of(typed: str, name: str) -> int:
    """Return the age that was typed, in microseconds. Raise `ConfigurationError` if it is none."""
    return microseconds(seconds(typed, name, zero=True))
