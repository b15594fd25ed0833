"""Run the suites of other projects with Oncekey around what they test: python -m tests.outside

Each runs bare and wrapped, and the outcomes are compared test by test. The exit code is 1 when a
difference has no reason in reasons.toml, or a reason there explains nothing.
"""

import argparse
import json
import sys
import time

from rich.console import Console
from rich.table import Table

from tests.outside import environment
from tests.outside.differences import Difference, compare, read, reason_for
from tests.outside.guests import BARE, CLAIMS, GUESTS, TITLES, Guest
from tests.outside.page import change, page
from tests.outside.report import Report, as_json, counts
from tests.outside.run import Outcomes, run

REASONS = environment.HERE / "reasons.toml"
PAGE = environment.ROOT / "docs" / "outside.md"
MOST_AGAIN = 20
"""More unexplained differences than that are no accident, and not tried again."""


def main() -> int:
    wanted = arguments()
    console = Console(stderr=wanted.json, highlight=False, soft_wrap=True)
    report = Report(read(REASONS))
    began = time.monotonic()
    for guest in wanted.guests:
        visit(guest, report, console, pin=wanted.pin)
    report.seconds = time.monotonic() - began
    show(report, console)
    if wanted.write:
        PAGE.write_text(page(report), "utf-8")
    if wanted.json:
        sys.stdout.write(json.dumps(as_json(report), indent=2) + "\n")
    return 0 if report.clean else 1


def arguments() -> argparse.Namespace:
    names = {guest.name: guest for guest in GUESTS}
    parser = argparse.ArgumentParser(prog="python -m tests.outside", description=__doc__)
    parser.add_argument("--guests", help=f"only these, with commas: {','.join(names)}")
    parser.add_argument("--write", action="store_true", help="write docs/outside.md")
    parser.add_argument("--json", action="store_true", help="print the report for programs")
    parser.add_argument(
        "--pin", action="store_true", help="fix the versions that no constraint names yet"
    )
    wanted = parser.parse_args()
    chosen = wanted.guests.split(",") if wanted.guests else list(names)
    unknown = [name for name in chosen if name not in names]
    if unknown:
        parser.error(f"there is no guest {', '.join(unknown)}")
    if wanted.write and len(chosen) < len(names):
        parser.error("--write needs all guests: the page tells of all of them")
    wanted.guests = [names[name] for name in chosen]
    return wanted


def visit(guest: Guest, report: Report, console: Console, *, pin: bool) -> None:
    """Run the guest's suite in each of its modes, and add what is found to the report."""
    report.guests.append(guest)
    report.versions[guest.name] = environment.version(guest)
    place = environment.prepare(guest, pin=pin)
    seen = report.outcomes[guest.name] = {}
    for mode in guest.modes:
        began = time.monotonic()
        seen[mode] = run(guest, place, mode)
        took = time.monotonic() - began
        console.print(f"{guest.name}, {TITLES[mode]}: {counts(seen[mode])} ({took:.0f} s)")
        if mode != BARE:
            check_that_we_were_there(guest, mode, seen[mode])
            found = compare(guest.name, mode, seen[BARE].tests, seen[mode].tests)
            steady, unsteady = try_again(guest, place, found, report)
            report.differences += steady
            report.unsteady += unsteady


def check_that_we_were_there(guest: Guest, mode: str, seen: Outcomes) -> None:
    """Stop when nothing was wrapped or claimed: the comparison would mean nothing."""
    if not seen.wrapped or bool(seen.claimed) != (mode in CLAIMS):
        found = f"{seen.wrapped} wrapped, {seen.claimed} claimed"
        raise SystemExit(f"{guest.name}, {TITLES[mode]}: the plugin does not work: {found}")


def try_again(
    guest: Guest, place: environment.Place, found: list[Difference], report: Report
) -> tuple[list[Difference], list[Difference]]:
    """Run each test with an unexplained difference alone, and tell which of them still differ."""
    loose = [one for one in found if reason_for(one, report.reasons) is None]
    if len(loose) > MOST_AGAIN:
        return found, []
    unsteady = [
        one
        for one in loose
        if run(guest, place, BARE, [one.test]).tests.get(one.test)
        == run(guest, place, one.mode, [one.test]).tests.get(one.test)
        is not None
    ]
    return [one for one in found if one not in unsteady], unsteady


def show(report: Report, console: Console) -> None:
    """Print the counts side by side, and the differences with their reasons."""
    for modes in dict.fromkeys(guest.modes for guest in report.guests):
        table = Table("suite", *(TITLES[mode] for mode in modes), "claimed")
        for guest in report.guests:
            if guest.modes == modes:
                seen = report.outcomes[guest.name]
                cells = [counts(seen[mode]) for mode in modes]
                table.add_row(guest.name, *cells, f"{seen[modes[-1]].claimed:,}")
        console.print(table)
    for reason, found in report.explained().items():
        console.print(f"{reason.guest}: {len(found)} explained: {reason.why}", markup=False)
    for one in report.unsteady:
        console.print(f"{one.guest}, {TITLES[one.mode]}: unsteady: {change(one)}", markup=False)
    for one in report.unexplained():
        console.print(f"{one.guest}, {TITLES[one.mode]}: UNEXPLAINED: {change(one)}", markup=False)
    for old in report.stale():
        words = f"{old.reason.guest}, {TITLES[old.mode]}: STALE REASON: {old.pattern}"
        console.print(words, markup=False)


if __name__ == "__main__":
    sys.exit(main())
