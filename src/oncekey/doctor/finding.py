"""A finding: what a setting of a store means for whoever counts on its records."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

Severity = Literal["danger", "warning", "fine"]

ORDER: Final[tuple[Severity, ...]] = ("danger", "warning", "fine")
"""The worst first."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    `danger`: records can be lost, or not be kept at all, while their duplicates still arrive.
    `warning`: that takes a fail-over or a power cut, or nobody could look. `fine`: as it should be.
    """

    check: str
    """The same in every run: `redis.eviction`."""
    severity: Severity
    meaning: str
    evidence: str
    """What was read, and where: `maxmemory_policy=allkeys-lru`."""
    fix: str = ""

    @property
    def sentence(self) -> str:
        """All of it on one line."""
        advice = f"; {self.fix}" if self.fix else ""
        return f"{self.meaning} ({self.evidence}){advice}"


def danger(check: str, meaning: str, evidence: str, fix: str) -> Finding:
    """Records can be lost, or are not kept."""
    return Finding(check=check, severity="danger", meaning=meaning, evidence=evidence, fix=fix)


def warning(check: str, meaning: str, evidence: str, fix: str) -> Finding:
    """Records can be lost when something else goes wrong first."""
    return Finding(check=check, severity="warning", meaning=meaning, evidence=evidence, fix=fix)


def fine(check: str, meaning: str, evidence: str) -> Finding:
    """As it should be."""
    return Finding(check=check, severity="fine", meaning=meaning, evidence=evidence)


def unread(check: str, what: str, why: str, fix: str) -> Finding:
    """Nobody could look; that is said, and nothing is made of it."""
    return warning(check, f"nobody could look at {what}", why, fix)


def sorted_by_severity(findings: list[Finding]) -> list[Finding]:
    """The worst first, and otherwise as they came."""
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))
