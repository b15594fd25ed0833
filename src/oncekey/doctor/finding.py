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


def unread(check: str, what: str, why: str, fix: str) -> Finding:
    """Return a warning that `what` could not be read."""
    return warning(check, f"nobody could look at {what}", why, fix)


def sorted_by_severity(findings: list[Finding]) -> list[Finding]:
    """Return the findings, the worst first, otherwise in their order."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))
