"""What all runs together have shown."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.outside.differences import Difference, Reason, Stale, failing, reason_for, stale
from tests.outside.guests import Guest
from tests.outside.run import Outcomes

ORDER = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@dataclass
class Report:
    """The outcomes of each guest in each mode, and what is said about them."""

    reasons: list[Reason]
    outcomes: dict[str, dict[str, Outcomes]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    unsteady: list[Difference] = field(default_factory=list)
    """Those that were gone when the test ran again alone."""
    guests: list[Guest] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def explained(self) -> dict[Reason, list[Difference]]:
        """Group the differences by their reasons, in the order of the reasons."""
        groups: dict[Reason, list[Difference]] = {reason: [] for reason in self.reasons}
        for one in self.differences:
            reason = reason_for(one, self.reasons)
            if reason is not None:
                groups[reason].append(one)
        return {reason: found for reason, found in groups.items() if found}

    def unexplained(self) -> list[Difference]:
        """List the differences that have no reason."""
        return [one for one in self.differences if reason_for(one, self.reasons) is None]

    def stale(self) -> list[Stale]:
        """List the reasons that explain nothing any more."""
        return stale(self.reasons, self.outcomes, self.differences)

    def failing_bare(self, guest: str) -> list[str]:
        """List the tests that fail without anything of ours."""
        return failing(self.outcomes[guest]["bare"].tests)

    @property
    def clean(self) -> bool:
        """Whether everything is explained, and every explanation is needed."""
        return not self.unexplained() and not self.stale()


def counts(outcomes: Outcomes) -> str:
    """Count the tests by their outcomes, in words."""
    counted = Counter(outcomes.tests.values())
    return ", ".join(f"{counted[name]:,} {name}" for name in ORDER if counted[name])


def as_json(report: Report) -> dict[str, Any]:
    """Return the report for programs."""
    return {
        "clean": report.clean,
        "seconds": round(report.seconds, 1),
        "guests": {
            guest: {
                "version": report.versions[guest],
                "counts": {mode: Counter(seen.tests.values()) for mode, seen in modes.items()},
                "claimed": {mode: seen.claimed for mode, seen in modes.items()},
                "wrapped": {mode: seen.wrapped for mode, seen in modes.items()},
                "fails_bare": report.failing_bare(guest),
            }
            for guest, modes in report.outcomes.items()
        },
        "differences": [
            {**one._asdict(), "reason": why.why if why else None}
            for one in report.differences
            for why in [reason_for(one, report.reasons)]
        ],
        "unsteady": [one._asdict() for one in report.unsteady],
        "stale": [
            {"guest": one.reason.guest, "mode": one.mode, "pattern": one.pattern}
            for one in report.stale()
        ],
    }
