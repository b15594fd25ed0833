"""A finding of the doctor: what one setting of a store means for its records."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Severity = Literal["danger", "warning", "fine"]

ORDER: Final[tuple[Severity, ...]] = ("danger", "warning", "fine")
"""The severities, the worst first."""


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check.

    `danger`: records can be lost, or not be kept at all, while their duplicates still arrive.
    `warning`: records are lost only after a fail-over or a power cut, or the setting could not be
    read. `fine`: as it should be.
    """

    check: str
    """The name of the check, the same in every run: `redis.eviction`."""
    severity: Severity
    meaning: str
    evidence: str
    """The setting that was read, and its value: `maxmemory_policy=allkeys-lru`."""
    fix: str = ""

    @property
    def sentence(self) -> str:
        """The whole finding on one line."""
        advice = f"; {self.fix}" if self.fix else ""
        return f"{self.meaning} ({self.evidence}){advice}"


def danger(check: str, meaning: str, evidence: str, fix: str) -> Finding:
    """Return a finding that records can be lost, or are not kept."""
    return Finding(check=check, severity="danger", meaning=meaning, evidence=evidence, fix=fix)


def warning(check: str, meaning: str, evidence: str, fix: str) -> Finding:
    """Return a finding that records can be lost when something else goes wrong first."""
    return Finding(check=check, severity="warning", meaning=meaning, evidence=evidence, fix=fix)


def fine(check: str, meaning: str, evidence: str) -> Finding:
    """Return a finding that all is as it should be."""
    return Finding(check=check, severity="fine", meaning=meaning, evidence=evidence)


HELD_LONG: Final = 3600
"""Seconds after which a held record has been held for long."""
BACKLOG: Final = 10_000
"""The number of expired records that are more than a purge has not come to yet."""
EXPIRED_LONG: Final = 86_400
"""Seconds after which an expired record should have been purged."""


def held_since(check: str, count: int, seconds: float | None) -> Finding:
    """Return a finding about held records, the oldest of which is held for so many seconds."""
    evidence = f"held={count}"
    if not count or seconds is None or seconds < HELD_LONG:
        return fine(check, "no record is held for long", evidence)
    evidence += f", the oldest one for {seconds / 3600:.0f} h"
    meaning = "records have been held for over an hour: calls with these keys are refused"
    return warning(check, meaning, evidence, "see `oncekey ls --status held`, and resolve them")


def backlog(check: str, count: int) -> Finding:
    """Return a finding about the number of records that expired over a day ago."""
    evidence = f"expired over a day ago={count}" + ("+" if count > BACKLOG else "")
    if count <= BACKLOG:
        return fine(check, "expired records are removed", evidence)
    meaning = "expired records are not removed: no process that uses the store runs for long"
    return warning(check, meaning, evidence, "run `oncekey purge` every day")


def indexes(check: str, missing: list[str]) -> Finding:
    """Return a finding about the indexes of the table of records."""
    if not missing:
        return fine(check, "the table of records has its indexes", "none is missing")
    meaning = "an index is missing: purges, lists and counts of held records are slow or estimated"
    return warning(check, meaning, f"missing={', '.join(missing)}", "run `oncekey migrate`")


def unread(check: str, what: str, why: str, fix: str) -> Finding:
    """Return a warning that `what` could not be read."""
    return warning(check, f"nobody could look at {what}", why, fix)


def sorted_by_severity(findings: list[Finding]) -> list[Finding]:
    """Return the findings, the worst first, otherwise in their order."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))
