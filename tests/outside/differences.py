"""How the outcomes of a run differ from those of the bare one, and why they may."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

MISSING = "missing"
BAD = frozenset({"failed", "error"})


class Difference(NamedTuple):
    """A test whose outcome is not the one of the bare run."""

    guest: str
    mode: str
    test: str
    bare: str
    seen: str


class Reason(NamedTuple):
    """Why tests of a guest may differ. In `tests` a star stands for any text."""

    guest: str
    modes: tuple[str, ...]
    tests: tuple[str, ...]
    why: str

    def explains(self, one: Difference) -> bool:
        """Tell whether the difference is one of those meant here."""
        if one.guest != self.guest or one.mode not in self.modes:
            return False
        return any(matches(pattern, one.test) for pattern in self.tests)


class Stale(NamedTuple):
    """A pattern of a reason that explains nothing any more."""

    reason: Reason
    mode: str
    pattern: str


def read(path: Path) -> list[Reason]:
    """Read the reasons; each has a guest, modes, tests and why."""
    tables = tomllib.loads(path.read_text("utf-8")).get("reason", [])
    return [
        Reason(one["guest"], tuple(one["modes"]), tuple(one["tests"]), one["why"]) for one in tables
    ]


def matches(pattern: str, test: str) -> bool:
    """Compare an id with a pattern, in which only the star is special."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), test, re.DOTALL) is not None


def compare(guest: str, mode: str, bare: dict[str, str], seen: dict[str, str]) -> list[Difference]:
    """List the tests whose outcomes differ. A test that only one run has is one of them."""
    found = (
        Difference(guest, mode, test, bare.get(test, MISSING), seen.get(test, MISSING))
        for test in sorted(bare.keys() | seen.keys())
    )
    return [one for one in found if one.bare != one.seen]


def reason_for(one: Difference, reasons: Iterable[Reason]) -> Reason | None:
    """Find the first reason that explains the difference."""
    return next((reason for reason in reasons if reason.explains(one)), None)


def stale(
    reasons: Iterable[Reason], guests: Iterable[str], found: Sequence[Difference]
) -> list[Stale]:
    """List what explains nothing, among the reasons of the guests that were run."""
    ran = set(guests)
    return [
        Stale(reason, mode, pattern)
        for reason in reasons
        if reason.guest in ran
        for mode in reason.modes
        for pattern in reason.tests
        if not any(
            one.guest == reason.guest and one.mode == mode and matches(pattern, one.test)
            for one in found
        )
    ]


def failing(outcomes: dict[str, str]) -> list[str]:
    """List the tests that fail."""
    return sorted(test for test, outcome in outcomes.items() if outcome in BAD)
