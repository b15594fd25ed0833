"""A case of the demonstration, and the place it is played at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from examples.demo.talk import Ask, Exchange, Line
from examples.payments.gateway import Charge
from examples.tour.step import Fact

PATIENCE = 30


class Place(Protocol):
    """Servers on one store, and what they did."""

    def send(self, ask: Ask, to: int = 1) -> Exchange:
        """The answer of server 1 or 2."""

    def charges(self) -> list[Charge]:
        """The gateway's book."""

    def events(self) -> list[str]:
        """The events that were processed."""

    def kill(self) -> int:
        """Server 1 is killed; its exit code."""

    def restart(self) -> None:
        """Server 1 runs again."""


@dataclass(frozen=True)
class Shown:
    """What happened in a case, and what is claimed about it."""

    exchanges: list[Exchange | Line]
    facts: list[Fact]
    charged: int
    """How many charges the case added to the gateway's book."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """`play` asks and judges; `asks` are its requests, for a reader with curl."""

    name: str
    title: str
    play: Callable[[Place], Iterator[Exchange | Line | Fact]]
    why: str
    asks: tuple[Ask, ...]

    def shown(self, place: Place) -> Shown:
        """The case has been played."""
        before = len(place.charges())
        seen = list(self.play(place))
        return Shown(
            [one for one in seen if not isinstance(one, Fact)],
            [one for one in seen if isinstance(one, Fact)],
            len(place.charges()) - before,
        )
