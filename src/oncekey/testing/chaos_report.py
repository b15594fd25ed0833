"""What chaos found: how often each effect happened in each schedule, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

MOST_SHOWN: Final = 25
_WIDEST: Final = 60


class ChaosError(AssertionError):
    """An effect happened more than once, or not at all, or callers were told different things."""


class Row(Struct):
    """One schedule and what came of it."""

    schedule: str
    counts: dict[str, int] = {}
    answers: list[Any] = []
    wrong: list[str] = []
    held: bool = False
    """Whether it ended as "outcome unknown", which a human resolves."""

    @property
    def remark(self) -> str:
        """What is to be said of it."""
        return "; ".join(self.wrong) or ("held" if self.held else "")


class Report(Struct):
    """Everything that was tried."""

    expected: dict[str, int]
    rows: list[Row]

    @property
    def wrong(self) -> list[Row]:
        """The schedules in which something was not as it must be."""
        return [row for row in self.rows if row.wrong]

    def __str__(self) -> str:
        """The table: first what is wrong."""
        wrong = self.wrong
        names = list(self.expected)
        head = f"{len(wrong)} of {len(self.rows)} schedules went wrong"
        chosen = (wrong or self.rows)[:MOST_SHOWN]
        width = min(_WIDEST, max(len(row.schedule) for row in chosen))
        lines = [head, "", self._line("schedule", {name: name for name in names}, width, "")]
        lines += [self._line(row.schedule, row.counts, width, row.remark) for row in chosen]
        if len(wrong or self.rows) > MOST_SHOWN:
            lines.append(f"... and {len(wrong or self.rows) - MOST_SHOWN} more")
        if wrong:
            lines += ["", self.advice()]
        return "\n".join(lines)

    @staticmethod
    def _line(schedule: str, cells: Mapping[str, object], width: int, wrong: str) -> str:
        columns = "".join(f"  {cells.get(name, 0)!s:>{max(6, len(name))}}" for name in cells)
        return f"  {schedule:<{width}}{columns}  {wrong}".rstrip()

    def advice(self) -> str:
        """What is most likely missing."""
        names = [row.schedule for row in self.wrong]
        if not any(any(row.counts.values()) for row in self.rows):
            return (
                "Nothing happened after the first run: what does your handler keep elsewhere? "
                "Pass reset= to put it back."
            )
        if any(not name.startswith("crash") for name in names):
            return (
                "A repeated call did something again: protect the function, "
                "as in @once('charge:{order.id}')."
            )
        return (
            "Only crashes did it: the effect was there and the record was not yet. Give the effect"
            "\na key, idempotency_key=current().downstream_key('charge'), or look it up with"
            "\nreconcile=, or choose on_crash='hold'."
        )
