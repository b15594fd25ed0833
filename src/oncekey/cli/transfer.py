"""`oncekey export` and `oncekey import`: move records from one store to another."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from msgspec.structs import asdict
from rich.progress import Progress, TextColumn

from oncekey.cli.errors import NOTHING, STORE, WRONG, CommandError
from oncekey.cli.options import Json, Reason, StoreUrl, opened_records, who
from oncekey.cli.output import console, print_json
from oncekey.core.audit import AuditEntry
from oncekey.inspection.transfer import ImportOutcome, export_records, import_records

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


def export(
    *, ctx: typer.Context, file: File, as_json: Json = False, store: StoreUrl = None
) -> None:
    """Write all records to a file, with their results. Go on with one that was cut off."""
    if str(file) == "-":
        raise CommandError("an export goes to a file, since it may have to go on with it", WRONG)
    with opened_records(ctx, store) as once, _progress("written") as heard:
        told = _checked(lambda: export_records(once.store, file, heard))
    if as_json:
        print_json({"exported": told.records, "newer": told.newer})
    else:
        typer.echo(f"{told.records:,} records are in {file}")
    if told.newer:
        some = "1 record" if told.newer == 1 else f"{told.newer:,} records"
        msg = f"{file} lacks {some} of a newer release; export with that release"
        raise CommandError(msg, STORE)


def import_(
    *,
    ctx: typer.Context,
    file: File,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Compare only, and change nothing.")
    ] = False,
    reason: Reason = "",
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Restore the records of a file, and read each one back. It may be repeated."""
    told = ImportOutcome()
    with opened_records(ctx, store) as once:
        try:
            with _progress("read") as heard:
                _checked(
                    lambda: import_records(
                        once.store, file, dry_run=dry_run, heard=heard, outcome=told
                    )
                )
        finally:
            audit = getattr(once.store, "audit", None)
            if told.restored and audit is not None:
                entry = AuditEntry(action="import", by=who(), reason=reason, count=told.restored)
                audit(entry.encode())
    if as_json:
        print_json(asdict(told))
    else:
        typer.echo(f"{told.restored:,} restored, {told.there:,} were there already")
        if told.expired:
            verb = "are missing" if dry_run else "have expired"
            typer.echo(f"{told.expired:,} {verb}")
        if told.different:
            typer.echo(f"{told.different:,} are different in the store, and were left alone")
        if told.newer:
            typer.echo(f"{told.newer:,} of a newer release: the export could not write them")
    if not told.complete:
        msg = f"{file} has no end: the export was cut off, and there may be more records"
        raise CommandError(msg, NOTHING)
    if told.different or told.newer:
        raise typer.Exit(NOTHING)


T = TypeVar("T")


def _checked(work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise CommandError(f"the file cannot be used: {error}", WRONG) from None


@contextmanager
def _progress(done: str) -> Iterator[Callable[[int], None]]:
    screen = console(error=True)
    columns = (TextColumn("{task.completed:,.0f} records " + done),)
    bar = Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)
    with bar:
        task = bar.add_task("", total=None)
        yield lambda count: bar.update(task, completed=count)
