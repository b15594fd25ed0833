"""The schedules of chaos: what happens to whom, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from oncekey.testing.processes import Plan

Kind = Literal["again", "overlap", "crash", "lose"]


class Schedule(NamedTuple):
    """One order of events. The plan is that of the first caller."""

    name: str
    kind: Kind
    plan: Plan | None = None
    elsewhere: bool = True
    """Whether the second caller is in another process."""


AGAIN: Final = (
    Schedule("the same call again", "again", elsewhere=False),
    Schedule("the same call again, in another process", "again"),
)


def schedules(points: list[str]) -> Iterator[Schedule]:
    """Everything that is tried with a call that passes these points when nothing is wrong."""
    yield from AGAIN
    for place, point in enumerate(points):
        plan = Plan("pause", place)
        yield Schedule(f"another caller {point}", "overlap", plan, elsewhere=False)
        yield Schedule(f"another process {point}", "overlap", plan)
    for place, point in enumerate(points):
        yield Schedule(f"crash {point}, then again", "crash", Plan("crash", place))
    for place, point in enumerate(points):
        if point in _REPLIES or point.startswith("after note"):
            lost = point.removeprefix("after ")
            yield Schedule(f"reply of {lost} lost, then again", "lose", Plan("lose", place))


_REPLIES: Final = ("after claim", "after settle", "after release")
