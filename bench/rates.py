"""The row of a rate that is held against a raw one, measured in the same rounds."""

from __future__ import annotations

from bench.interleave import Timings
from bench.row import Row


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
