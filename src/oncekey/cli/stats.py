"""`oncekey stats`: print how many records there are in each status."""

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from oncekey.cli.options import Json, StoreUrl, opened_records
from oncekey.cli.output import COLOURS, console, print_json
from oncekey.inspection.listing import count_records
from oncekey.inspection.text import basis_of, iso, lapsed_among, length, number_of, printable
from oncekey.stores.browse import RecordCounts

_BAR: Final = 30
_LITTLE: Final = 0.005


def stats(
    *,
    ctx: typer.Context,
    exact: Annotated[
        bool, typer.Option("--exact", help="Count every record, however long that takes.")
    ] = False,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Tell how many records there are. Many are estimated from a sample, and it is said."""
    with opened_records(ctx, store) as once:
        told = count_records(once.store, exact=exact)
    if as_json:
        print_json(fields_of_counts(told))
    else:
        _print(told, console())


def fields_of_counts(told: RecordCounts) -> dict[str, object]:
    """Return the counts as fields, for `--json`.

    An estimate is never where a count would be. Null stands for a status that no record of the
    sample has.
    """
    counted = {name: count for name, count in told.by_status.items() if told.counted(name)}
    others = {name: count or None for name, count in told.by_status.items() if name not in counted}
    fields: dict[str, object] = {"total": told.total} if told.exact else {}
    if told.exact:
        fields["lapsed"] = told.lapsed
    fields |= {"by_status": counted, "exact": told.exact, "looked_at": told.looked_at}
    if not told.exact:
        named = "at_least" if told.at_least else "estimated"
        fields[named] = {"total": told.total, "by_status": others, "lapsed": told.lapsed or None}
    return {**fields, "held_since": None if told.held_since is None else iso(told.held_since)}


def _print(told: RecordCounts, out: Console) -> None:
    numbers = {status: number_of(told, status) for status in told.by_status}
    width = max(map(len, [*numbers.values(), number_of(told)]))
    for status, count in told.by_status.items():
        share = count / told.total if told.total else 0.0
        known = (count or told.counted(status)) and not told.at_least
        percent = _percent(share) if known else ""
        line = Text.assemble(
            (f"{printable(status):<9}", COLOURS.get(status, "")),
            f"  {numbers[status]:>{width}}  {percent:>4}",
        )
        if out.is_terminal:
            bar = "█" * round(share * _BAR) or ("▏" if count else "")
            line.append(f"  {bar}", style=COLOURS.get(status, ""))
        out.print(line)
    out.print(f"{'total':<9}  {number_of(told):>{width}}")
    if told.lapsed:
        out.print(f"of those that are running, {lapsed_among(told)}: their leases are over")
    if told.held_since is not None:
        out.print(f"the oldest one is held for {length(told.now - told.held_since)}")
    if not told.exact:
        out.print(sampled(told), soft_wrap=True)


def _percent(share: float) -> str:
    """Return the share in percent. A share that rounds to zero is `<1%`."""
    return "<1%" if 0 < share < _LITTLE else f"{share:.0%}"


def sampled(told: RecordCounts) -> str:
    """Return the remark that says the counts are estimates."""
    missed = "" if told.at_least else ", so that rare ones may be missed"
    return f"{basis_of(told)}{missed}; --exact counts all"
