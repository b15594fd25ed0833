"""`oncekey size`: tell how much the records take, and what another ttl would cost."""

from typing import Annotated, Final

import typer

from oncekey.cli.options import Json, StoreUrl, opened_records
from oncekey.cli.output import print_json
from oncekey.inspection.listing import count_records, measure
from oncekey.inspection.text import estimate, number_of
from oncekey.policy import FUNCTION, seconds

_DAY: Final = 86_400.0
_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024


def size(
    *,
    ctx: typer.Context,
    ttl: Annotated[
        str,
        typer.Option(
            metavar="TIME", envvar="ONCEKEY_TTL", help="How long records would be kept: 24h, 7d."
        ),
    ] = str(FUNCTION.ttl),
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Tell how much the records take, how many come in a day, and what a ttl costs."""
    days = seconds(ttl, "--ttl") / _DAY
    with opened_records(ctx, store) as once:
        told = count_records(once.store)
        found = measure(once.store, told.total)
    each = found.bytes / max(told.total, 1)
    cost = None if found.new is None else round(found.new * days * each)
    if as_json:
        named = "at_least" if told.at_least else "estimated"
        fields: dict[str, object] = {
            "records" if told.exact else f"{named}_records": told.total,
            "bytes" if found.exact else f"{named}_bytes": found.bytes,
            "estimated_bytes_each": round(each),
            "estimated_new_in_a_day": found.new,
            "ttl": ttl,
            "estimated_bytes_with_ttl": cost,
        }
        print_json(fields)
        return
    typer.echo(f"records            {number_of(told)}")
    about = "at least " if told.at_least else "about "
    typer.echo(f"they take          {'' if found.exact else about}{_of(found.bytes)}")
    typer.echo(f"each takes         about {_of(each)}")
    if found.new is not None and cost is not None:
        typer.echo(f"new in a day       about {estimate(found.new):,}, {_of(found.new * each)}")
        typer.echo(f"with a ttl of {ttl:<4} about {_of(cost)}")


def _of(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < _STEP:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= _STEP
    return f"{count:,.1f} {_UNITS[-1]}"
