"""The row that holds ours against the peer that comes closest to it, with the others beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.interleave import Spread, Timings
from bench.row import Row

LEAST_SPEED: Final = 1.0
"""Ours is faster than every peer."""


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
