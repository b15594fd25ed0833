"""One line of the report."""

from __future__ import annotations

from dataclasses import dataclass

from bench.interleave import Spread


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was measured, what it was held against, and whether that is as it must be."""

    id: str
    """The same in every run and every setting."""
    title: str
    value: float
    unit: str
    against: str = ""
    """The raw limit or peer in words."""
    against_value: float | None = None
    """The same measure of it."""
    ratio: Spread | None = None
    target: str = ""
    met: bool | None = None
    """None without a target, and where it could not be measured."""
    remark: str = ""

    @property
    def verdict(self) -> str:
        """How it stands with the target; empty without one."""
        if not self.target:
            return ""
        return {None: "NOT MEASURED", True: "ok", False: "MISSED"}[self.met]
