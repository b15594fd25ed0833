"""Newest first, as a cursor says it: a moment, and how many of that moment were passed already.

There is nothing in it that would tell about a record.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from oncekey.looking.ask import bad_cursor, whole_number


class Mark(NamedTuple):
    """How far somebody has come who goes from new to old."""

    created: int
    passed: int = 0
    """Records of this very moment that lie behind."""

    def __str__(self) -> str:
        return f"{self.created}.{self.passed}"


FIRST: Final = Mark(2**63 - 1)
"""Before everything: nothing was created then."""


def mark_of(after: str | None) -> Mark:
    """Where the page starts."""
    if after is None:
        return FIRST
    created, _, passed = after.partition(".")
    try:
        return Mark(whole_number(created), whole_number(passed))
    except ValueError:
        raise bad_cursor(after) from None
