"""The ranges of sequence numbers that the stages of a job may use."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from oncekey.errors import ConfigurationError
from oncekey.events.errors import InvalidEventError

Range = tuple[int, int]
"""The first and the last number of a stage."""

STANDARD: Final[Mapping[str, Range]] = {
    "vision": (10, 19),
    "rule": (20, 29),
    "answer": (30, 39),
    "reward": (40, 49),
    "done": (50, 59),
}
FINAL: Final = 51
GREATEST: Final = 2**53 - 1
"""The greatest number. Redis scripts count with floats, which are exact up to here."""


class Stages:
    """The ranges of sequence numbers, one for each stage.

    Ranges do not overlap, so that a client may name the event that it saw last by its number.
    `default` is the range of every stage that has none of its own; without it such a stage is
    refused. Stages of the default range share its numbers.
    """

    def __init__(
        self,
        ranges: Mapping[str, Range] | None = None,
        *,
        default: Range | None = None,
        final: int | None = None,
    ) -> None:
        """Check the ranges.

        `final` is the number of a job's last event; for the standard ranges it is 51.
        """
        if ranges is not None and not isinstance(ranges, Mapping):
            msg = f"the ranges of stages are a mapping, such as {{'load': (1, 99)}}, not {ranges!r}"
            raise ConfigurationError(msg)
        own = STANDARD if ranges is None else ranges
        self._ranges = {_named(stage): _checked(stage, pair) for stage, pair in own.items()}
        self._default = None if default is None else _checked("default", default)
        self.final = FINAL if ranges is None and final is None else final
        every = [*self._ranges.items(), *([("default", default)] if default else [])]
        _apart(every)
        if final is not None and not any(_within(final, pair) for _, pair in every):
            raise ConfigurationError(f"final must be a number of one of the stages, not {final!r}")

    def range_of(self, stage: str) -> Range:
        """Return the first and the last number that the stage may use.

        Raise InvalidEventError if the stage is unknown.
        """
        if not isinstance(stage, str) or not stage:
            raise InvalidEventError(f"a stage is a word, but this one is {stage!r}")
        found = self._ranges.get(stage, self._default)
        if found is None:
            known = ", ".join(self._ranges)
            msg = f"there is no stage {stage!r}; use one of {known}, or give Stages a default"
            raise InvalidEventError(msg)
        return found

    def seq_of(self, stage: str, *, seq: int | None, step: int | None) -> int:
        """Return the number of an event, from `seq` or its position `step` in the stage's range.

        Raise InvalidEventError if both or none are given, or if the number is outside the range.
        """
        known = self._ranges.get(stage) if type(stage) is str else None  # nearly always
        first, last = known or self.range_of(stage)
        if (seq is None) == (step is None):
            msg = (
                "give seq, or step, its position in the range of the stage, and not both: a number "
                "that is counted for you would make a retry a new event"
            )
            raise InvalidEventError(msg)
        given = seq if step is None else step
        if not isinstance(given, int) or isinstance(given, bool):
            raise InvalidEventError(f"seq and step are whole numbers, but this is {given!r}")
        number = given if step is None else first + given
        if not first <= number <= last:
            msg = f"the numbers of stage {stage!r} go from {first} to {last}; {number} is outside"
            raise InvalidEventError(msg)
        return number

    def is_final(self, seq: int) -> bool:
        """Return whether the event with this number is the last that a job publishes."""
        return seq == self.final


def _named(stage: str) -> str:
    if not isinstance(stage, str) or not stage:
        raise ConfigurationError(f"a stage is a word, but this one is {stage!r}")
    return stage


def _checked(stage: str, pair: Range) -> Range:
    whole = (
        isinstance(pair, tuple)
        and len(pair) == 2  # noqa: PLR2004 - a first and a last
        and all(isinstance(one, int) and not isinstance(one, bool) for one in pair)
    )
    if not whole or not 0 <= pair[0] <= pair[1] <= GREATEST:
        msg = f"the range of {stage!r} must be a first and a last number such as (10, 19), not"
        raise ConfigurationError(f"{msg} {pair!r}")
    return pair


def _within(number: int, pair: Range) -> bool:
    return type(number) is int and pair[0] <= number <= pair[1]


def _apart(ranges: list[tuple[str, Range]]) -> None:
    ranges = sorted(ranges, key=lambda one: one[1])
    for (stage, (_, last)), (other, (first, _)) in pairwise(ranges):
        if first <= last:
            msg = f"the ranges of {stage!r} and {other!r} share the number {first}; move one"
            raise ConfigurationError(msg)
