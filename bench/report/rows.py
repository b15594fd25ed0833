"""The rows of a report: one is what was measured, and what it was held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bench.settings import Settings
from bench.timing import Spread, Timings

LEAST_SPEED: Final = 1.0
"""Ours is faster than every peer."""


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


@dataclass(frozen=True)
class Report:
    """Everything that a run has to say."""

    settings: Settings
    machine: dict[str, str]
    rows: list[Row]
    parts: tuple[str, ...] = ()
    """Which parts were measured, by the names in `bench.run.PARTS`."""

    @property
    def missed(self) -> list[Row]:
        """The rows that are not as they must be, or could not be measured."""
        return [row for row in self.rows if row.target and not row.met]


def joined(kept: Report, later: Report) -> Report:
    """Return the kept report with the rows of a later run, which measured some of its parts.

    The facts of the machine that were others in that run stand beside the names of the parts.
    """
    rows = {row.id: row for row in kept.rows} | {row.id: row for row in later.rows}
    others = [
        f"{name} {fact}" for name, fact in later.machine.items() if kept.machine.get(name) != fact
    ]
    machine = {
        **kept.machine,
        f"{', '.join(later.parts)}, in a later run": ", ".join(others) or "the same",
    }
    return Report(kept.settings, machine, list(rows.values()), kept.parts)


def rate_row(
    timings: Timings | None,
    side: str,
    *,
    id_: str,
    title: str,
    against: str,
    remark: str,
    least: float | None = None,
) -> Row:
    """How many calls `side` makes while its raw side makes one; empty where nobody was there."""
    raw = f"raw {side}"
    speed = None if timings is None else timings.speed(side, raw)
    return Row(
        id=id_,
        title=title,
        value=0.0 if timings is None else 1 / timings.per_call(side),
        unit="calls/s",
        against=against,
        against_value=None if timings is None else 1 / timings.per_call(raw),
        ratio=speed,
        target="" if least is None else f"at least {least}x",
        met=None if speed is None or least is None else speed.median >= least,
        remark=remark,
    )


def closest_row(
    timings: Timings | None,
    ours: str,
    peers: Mapping[str, str],
    *,
    id_: str,
    title: str,
    remark: str = "",
) -> Row:
    """How many calls ours makes while the closest peer makes one; `peers` names their sides."""
    speeds: dict[str, Spread] = {}
    if timings is not None:
        speeds = {
            peer: timings.speed(ours, side) for peer, side in peers.items() if side in timings
        }
    closest = min(speeds, key=lambda peer: speeds[peer].median, default="")
    others = [_told(peer, speeds.get(peer)) for peer in peers if peer != closest]
    if timings is None:
        others = []
    return Row(
        id=id_,
        title=title,
        value=0.0 if timings is None else 1 / timings.per_call(ours),
        unit="calls/s",
        against=closest or ", ".join(peers),
        against_value=1 / timings.per_call(peers[closest]) if timings and closest else None,
        ratio=speeds.get(closest),
        target=f"at least {LEAST_SPEED}x",
        met=speeds[closest].median >= LEAST_SPEED if closest else None,
        remark="; ".join(filter(None, [*others, remark])),
    )


def _told(peer: str, speed: Spread | None) -> str:
    return f"{peer} is not installed" if speed is None else f"of {peer} {speed.median:.2f}x"
