"""Small drawings: paths and widths for SVG, which needs no style and no script for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from oncekey.stores.browse import STATUSES

WIDTH: Final = 600
HEIGHT: Final = 100
_TOP: Final = 6
_LEAST: Final = 8.0
"""A piece of the bar that can still be seen."""


class Piece(Struct, frozen=True):
    """One status in the bar of all."""

    status: str
    x: float
    width: float


def line(values: Sequence[int], highest: int) -> str:
    """The values from left to right, as the `d` of a path."""
    step = WIDTH / max(len(values) - 1, 1)
    room = HEIGHT - _TOP
    points = (
        f"{index * step:.1f} {HEIGHT - room * value / max(highest, 1):.1f}"
        for index, value in enumerate(values)
    )
    return "M" + "L".join(points)


def area(values: Sequence[int], highest: int) -> str:
    """The same, filled down to the ground."""
    return f"{line(values, highest)}L{WIDTH} {HEIGHT}L0 {HEIGHT}Z"


def bar(by_status: Mapping[str, int]) -> list[Piece]:
    """Every status side by side; one that exists is seen, however few they are."""
    present = {name: by_status.get(name, 0) for name in STATUSES}
    total = sum(present.values())
    if not total:
        return [Piece(name, 0, 0) for name in STATUSES]
    widths = {name: max(_LEAST, WIDTH * n / total) if n else 0.0 for name, n in present.items()}
    scale = WIDTH / sum(widths.values())
    pieces = []
    x = 0.0
    for name, width in widths.items():
        pieces.append(Piece(name, round(x, 1), round(width * scale, 1)))
        x += width * scale
    return pieces
