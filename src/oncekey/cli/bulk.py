"""`oncekey resolve-all` and `oncekey forget-all`: one decision for everything that matches."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from oncekey import Once, Record, StoreError
from oncekey.cli.errors import INTERRUPTED, NOTHING, STORE, WRONG, CommandError
from oncekey.cli.ls import Wanted, age_of, status_of
from oncekey.cli.options import Json, Reason, StoreUrl, opened_records, who
from oncekey.cli.output import console, print_json
from oncekey.cli.resolve import ending_of
from oncekey.core.key import checked_scope
from oncekey.inspection.bulk import Act, BulkOutcome, apply_to_all, collect, forgetting, resolving
from oncekey.inspection.text import length, now, printable
from oncekey.stores.browse import RecordQuery

Scope = Annotated[
    str | None, typer.Option(metavar="SCOPE", help="Only this scope; '' for keys without a scope.")
]
Label = Annotated[str, typer.Option(metavar="LABEL", help="Only records with this label.")]
Prefix = Annotated[str, typer.Option(metavar="TEXT", help="Only keys that begin so, in any scope.")]
Older = Annotated[
    str, typer.Option(metavar="TIME", help="Only records that are older: 30min, 12h, 7d.")
]
Newer = Annotated[
    str, typer.Option(metavar="TIME", help="Only records that are newer: 30min, 12h, 7d.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]
Expect = Annotated[
    int | None,
    typer.Option(metavar="N", min=0, help="Act only if exactly so many match; asks nothing."),
]
Rate = Annotated[
    float, typer.Option(metavar="N", min=0, help="At most so many in a second; 0: no limit.")
]


def resolve_all(
    *,
    ctx: typer.Context,
    result: Annotated[
        str | None, typer.Option(metavar="JSON", help="They were done; this is what they returned.")
    ] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="They failed for good, with this error.")
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="They were not done; the next calls run them.")
    ] = False,
    scope: Scope = None,
    label: Label = "",
    prefix: Prefix = "",
    older: Older = "0",
    newer: Newer = "0",
    reason: Reason = "",
    dry_run: DryRun = False,
    expect: Expect = None,
    rate: Rate = 100.0,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Say how all held records ended that match. It asks for their number first."""
    said = ending_of(result, error, retry=retry)
    ask = _query("held", scope, label, prefix, older, newer)
    act = resolving(said, by=who(), reason=reason)
    _run(ctx, store, ask, act, "resolved", dry_run=dry_run, expect=expect, rate=rate, json=as_json)


def forget_all(
    *,
    ctx: typer.Context,
    status: Annotated[Wanted | None, typer.Option(help="Only records with this status.")] = None,
    scope: Scope = None,
    label: Label = "",
    prefix: Prefix = "",
    older: Older = "0",
    newer: Newer = "0",
    force: Annotated[
        bool,
        typer.Option("--force", help="Also those that run (their attempts are lost) or are held."),
    ] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    expect: Expect = None,
    rate: Rate = 100.0,
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Forget all keys that match, so that they may run again. It asks for their number first."""
    if not (status or label or prefix or scope is not None or older != "0" or newer != "0"):
        msg = "say which: --status, --scope, --label, --prefix, --older or --newer"
        raise CommandError(msg, WRONG)
    ask = _query(status_of(status), scope, label, prefix, older, newer)
    act = forgetting(force=force, by=who(), reason=reason)
    _run(ctx, store, ask, act, "forgotten", dry_run=dry_run, expect=expect, rate=rate, json=as_json)


def _query(status: Any, scope: str | None, label: str, prefix: str, *ages: str) -> RecordQuery:
    older, newer = ages
    return RecordQuery(
        status=status,
        scope=checked_scope(scope or None),
        any_scope=scope is None,
        label=label,
        prefix=prefix,
        older=age_of(older, "--older"),
        newer=age_of(newer, "--newer"),
        limit=500,
    )


def _run(
    ctx: typer.Context,
    store: str | None,
    ask: RecordQuery,
    act: Act,
    done: str,
    *,
    dry_run: bool,
    expect: int | None,
    rate: float,
    json: bool,
) -> None:
    with opened_records(ctx, store) as once:
        records = collect(once.store, ask)
        if dry_run:
            _print_plan(records, json=json)
            return
        if not records:
            raise CommandError("no record matches; nothing was changed", NOTHING)
        _confirm(records, expect, done)
        outcome = _applied(once, records, act, done, rate)
    fields = {done: outcome.done, "changed": outcome.changed, "refused": outcome.refused}
    if json:
        print_json(fields)
        return
    typer.echo(f"{outcome.done:,} of {len(records):,} {done}")
    if outcome.changed:
        typer.echo(f"{outcome.changed:,} have changed meanwhile, and were left alone")
    if outcome.refused:
        typer.echo(f"{outcome.refused:,} are running or held, and were left alone; see --force")


def _applied(once: Once, records: list[Record], act: Act, done: str, rate: float) -> BulkOutcome:
    reached = BulkOutcome()
    with _progress(len(records)) as advance:

        def heard(outcome: BulkOutcome) -> None:
            nonlocal reached
            reached = outcome
            advance()

        try:
            return apply_to_all(once, records, act, per_second=rate, heard=heard)
        except StoreError as error:
            msg = f"{_so_far(reached, records, done)}, then the store failed: {error}"
            raise CommandError(msg, STORE) from None
        except KeyboardInterrupt:
            raise CommandError(_so_far(reached, records, done), INTERRUPTED) from None


def _so_far(reached: BulkOutcome, records: list[Record], done: str) -> str:
    again = "run the command again for the rest, with its number"
    return f"{reached.done:,} of {len(records):,} are {done} ({again})"


def _confirm(records: list[Record], expect: int | None, done: str) -> None:
    """Compare with the number that was expected, or ask for it on a terminal."""
    count = len(records)
    if expect is not None:
        if expect != count:
            msg = f"{count:,} records match, not {expect:,}; nothing was changed"
            raise CommandError(msg, NOTHING)
        return
    if not sys.stdin.isatty():
        msg = f"{count:,} records match; say --expect {count} if that is right, or see --dry-run"
        raise CommandError(msg, WRONG)
    for line in _summary(records):
        typer.echo(line, err=True)
    typed: str = typer.prompt(
        f"{count} records will be {done}. Type their number to go on", err=True
    )
    if typed.replace(",", "").strip() != str(count):
        raise typer.Abort


def _print_plan(records: list[Record], *, json: bool) -> None:
    if json:
        print_json({"matches": len(records)})
        return
    typer.echo(f"{len(records):,} records match; nothing was changed")
    for line in _summary(records):
        typer.echo(line)


def _summary(records: list[Record]) -> Iterator[str]:
    """Yield how many there are of each label, scope and status, and how old they are."""
    counts = Counter(
        (one.status, one.label or "no label", one.scope or "no scope") for one in records
    )
    for (status, label, scope), count in counts.most_common(10):
        yield printable(f"  {count:>7,}  {status}  {label}  {scope}")
    if len(counts) > 10:  # noqa: PLR2004 - as many as a screen takes
        yield f"  and {len(counts) - 10} more kinds"
    if records:
        ages = [now() - one.created for one in records]
        yield f"  created {length(max(ages))} to {length(min(ages))} ago"


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    screen = console(error=True)
    columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    with bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
