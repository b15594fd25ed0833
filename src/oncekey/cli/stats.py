"""`oncekey stats`: print how many records there are in each status."""

from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from oncekey.cli.options import Json, StoreUrl, opened_records
from oncekey.cli.output import COLOURS, console, print_json
from oncekey.inspection.listing import count_records
from oncekey.inspection.text import printable
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
    """Return the counts as fields, for `--json`."""
    return {
        "total": told.total,
        "by_status": told.by_status,
        "exact": told.exact,
        "looked_at": told.looked_at,
    }


def _print(told: RecordCounts, out: Console) -> None:
    width = len(f"{told.total:,}")
    for status, count in told.by_status.items():
        share = count / told.total if told.total else 0.0
        line = Text.assemble(
            (f"{printable(status):<9}", COLOURS.get(status, "")),
            f"  {count:>{width},}  {_percent(share):>4}",
        )
        if out.is_terminal:
            bar = "█" * round(share * _BAR) or ("▏" if count else "")
            line.append(f"  {bar}", style=COLOURS.get(status, ""))
        out.print(line)
    out.print(f"{'total':<9}  {told.total:>{width},}")
    if not told.exact:
        out.print(sampled(told))


def _percent(share: float) -> str:
    """Return the share in percent. A share that rounds to zero is `<1%`."""
    return "<1%" if 0 < share < _LITTLE else f"{share:.0%}"


def sampled(told: RecordCounts) -> str:
    """Return the remark that says the counts are estimates."""
    return (
        f"about, sampled from {told.looked_at:,} records: rare ones may be missed; "
        f"--exact counts all"
    )
