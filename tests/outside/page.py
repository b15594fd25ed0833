"""The page `docs/outside.md`."""

import os
import platform
import textwrap
from collections.abc import Iterator

from tests.outside.differences import Difference, Reason
from tests.outside.guests import TITLES
from tests.outside.report import Report, counts

MOST_LISTED = 12

HEAD = """\
# Test suites of other projects

Our own tests show that Oncekey does what we mean. They cannot show that an application behind it
still does what its authors mean. So the suites of the frameworks themselves are run with Oncekey
around every application that they make, and each test must end as it does without.

Each suite comes from the source distribution of the release that `constraints.txt` names, and runs
in an environment of its own. HTTP frameworks run three times:

- *bare*: as it was published;
- *without keys*: behind the middleware, with the requests as they are;
- *with keys*: the same, and every POST, PUT, PATCH and DELETE that has no `Idempotency-Key` gets a
  fresh one, so that each of them is claimed, recorded and held back until that is done.

Celery runs twice: bare, and with `once_task` under the function of every task.

A test whose outcome is not the one of the bare run is a difference. One that has no reason below
fails the command, and so does a reason that explains nothing any more. A difference that has no
reason is tried again first, with the test alone, bare and wrapped: if both agree then, it is listed
as unsteady. A test that fails bare, because of this machine or of newer dependencies, is no
difference as long as it fails wrapped too.

This page is written by `make outside`. The last run took {seconds:.0f} s on {cores} cores with
Python {python}.
"""


def page(report: Report) -> str:
    """Write the whole page."""
    head = HEAD.format(
        seconds=report.seconds, cores=os.cpu_count(), python=platform.python_version()
    )
    parts = [head, "\n".join(suites(report)), "\n".join(table(report))]
    parts.append("\n".join(differences(report)))
    parts.append("\n".join(fails_bare(report)))
    if report.unsteady:
        parts.append("\n".join(unsteady(report)))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def suites(report: Report) -> Iterator[str]:
    """Say what of each suite runs."""
    yield "## What runs\n"
    yield "| suite | version | what |"
    yield "|---|---|---|"
    for guest in report.guests:
        yield f"| {guest.name} | {report.versions[guest.name]} | {guest.about} |"


def table(report: Report) -> Iterator[str]:
    """Set the counts of the modes side by side; suites with the same modes share a table."""
    yield "## Outcomes\n"
    yield "*Wrapped* is how many applications or tasks were, *claimed* how many requests or jobs."
    for modes in dict.fromkeys(guest.modes for guest in report.guests):
        titles = [*(TITLES[mode] for mode in modes), "wrapped", "claimed"]
        yield f"\n| suite | {' | '.join(titles)} |"
        yield "|---|" + "---|" * len(modes) + "---:|---:|"
        for guest in report.guests:
            if guest.modes == modes:
                seen = report.outcomes[guest.name]
                cells = [counts(seen[mode]) for mode in modes]
                cells += [f"{seen[modes[-1]].wrapped:,}", f"{seen[modes[-1]].claimed:,}"]
                yield f"| {guest.name} | {' | '.join(cells)} |"


def differences(report: Report) -> Iterator[str]:
    """List every difference under its reason."""
    yield "## Differences and their reasons\n"
    if not report.differences:
        yield "There are none."
    for guest in report.outcomes:
        groups = {
            reason: found for reason, found in report.explained().items() if reason.guest == guest
        }
        if groups:
            yield f"### {guest}\n"
        for reason, found in groups.items():
            yield from difference(reason, found)
    loose = report.unexplained()
    if loose:
        yield "### Unexplained\n"
        for one in loose:
            yield f"- {one.guest}, {TITLES[one.mode]}: {change(one)}"
        yield ""


def difference(reason: Reason, found: list[Difference]) -> Iterator[str]:
    """Give the reason, and the tests that it explains."""
    yield textwrap.fill(reason.why, 100, break_on_hyphens=False) + "\n"
    modes = {mode: [one for one in found if one.mode == mode] for mode in reason.modes}
    for mode, those in modes.items():
        if len(those) > MOST_LISTED:
            patterns = ", ".join(f"`{pattern}`" for pattern in reason.tests)
            yield f"- {TITLES[mode]}: {len(those)} tests, {patterns}"
        else:
            for one in those:
                yield f"- {TITLES[mode]}: {change(one)}"
    yield ""


def change(one: Difference) -> str:
    return f"`{one.test}`, {one.bare} → {one.seen}"


def fails_bare(report: Report) -> Iterator[str]:
    """List the tests that fail without anything of ours."""
    yield "## Tests that fail bare\n"
    none = True
    for guest in report.outcomes:
        for test in report.failing_bare(guest):
            none = False
            yield f"- {guest}: `{test}`"
    if none:
        yield "There are none."


def unsteady(report: Report) -> Iterator[str]:
    """List the differences that were gone when the test ran again alone."""
    yield "## Unsteady in the last run\n"
    for one in report.unsteady:
        yield f"- {one.guest}, {TITLES[one.mode]}: {change(one)}"
