"""`oncekey doctor`: look for settings of the store that lose records."""

from collections import Counter
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from oncekey.cli import sqlite_tables
from oncekey.cli.errors import DONE, NOTHING, WRONG, CommandError
from oncekey.cli.options import Json, StoreUrl, chosen_store
from oncekey.cli.output import console, print_json
from oncekey.doctor import Finding, Severity, examine
from oncekey.errors import StoreError
from oncekey.inspection.text import printable
from oncekey.policy import FUNCTION
from oncekey.stores import SQLiteStore

COLOURS: Final[dict[Severity, str]] = {"danger": "bold red", "warning": "yellow", "fine": "green"}
_PLURALS: Final[dict[Severity, str]] = {"danger": "dangers", "warning": "warnings", "fine": "fine"}
_WIDTH: Final = 9


def doctor(
    *,
    ctx: typer.Context,
    retry_horizon: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            envvar="ONCEKEY_RETRY_HORIZON",
            help="How long after a call a duplicate may arrive: 30min, 12h, 7d.",
        ),
    ] = None,
    ttl: Annotated[
        str,
        typer.Option(
            metavar="TIME", envvar="ONCEKEY_TTL", help="How long records answer duplicates."
        ),
    ] = str(FUNCTION.ttl),
    events: Annotated[
        str | None,
        typer.Option(metavar="DOMAIN", help="Look at the logs of this domain of events as well."),
    ] = None,
    marker_ttl: Annotated[
        str, typer.Option(metavar="TIME", help="The marker_ttl of that domain.")
    ] = "2h",
    as_json: Json = False,
    store: StoreUrl = None,
) -> None:
    """Look for settings of the store that lose records.

    The exit code is 1 when something dangerous was found, and 2 when the store does not answer.
    """
    bus = None if events is None else _settings(events, marker_ttl)
    patient = chosen_store(ctx, store)
    if isinstance(patient, SQLiteStore):
        sqlite_tables.must_exist(patient, typed=ctx.obj.typed)
    try:
        found = examine(patient, ttl=ttl, retry_horizon=retry_horizon, events=bus)
    except StoreError as error:
        raise CommandError(str(error), WRONG) from None
    finally:
        patient.close()
    if as_json:
        for finding in found:
            print_json({name: getattr(finding, name) for name in finding.__struct_fields__})
    else:
        out = console()
        for finding in found:
            _show(out, finding)
        out.print(_summary(found))
    dangerous = any(finding.severity == "danger" for finding in found)
    raise typer.Exit(NOTHING if dangerous else DONE)


def _settings(domain: str, marker_ttl: str) -> object:
    """Return the settings of a bus. Raise `ConfigurationError` if one is wrong."""
    from oncekey.events.settings import BusSettings

    return BusSettings(domain, state_ttl=marker_ttl, marker_ttl=marker_ttl)


def _show(out: Console, finding: Finding) -> None:
    """Print a finding on one line if it is fine, else with lines for the evidence and the fix."""
    severity = Text(finding.severity.ljust(_WIDTH), style=COLOURS[finding.severity])
    if finding.severity == "fine":
        said = f"{finding.check}: {finding.meaning} ({printable(finding.evidence)})"
        out.print(Text.assemble(severity, said), soft_wrap=True)
        return
    out.print(Text.assemble(severity, f"{finding.check}: {finding.meaning}"), soft_wrap=True)
    for name, said in (("read", finding.evidence), ("do", finding.fix)):
        line = Text.assemble(" " * _WIDTH, (name.ljust(6), "dim"), printable(said))
        out.print(line, soft_wrap=True)


def _summary(found: list[Finding]) -> str:
    """Return how many findings there are of each severity, as text."""
    counts = Counter(finding.severity for finding in found)
    return ", ".join(
        f"{counts[severity]} {severity if counts[severity] == 1 else _PLURALS[severity]}"
        for severity in COLOURS
    )
