"""The step in which a record has answered for long enough."""

from __future__ import annotations

import time
from collections.abc import Iterator

from examples.tour.shop import bank, once
from examples.tour.step import Fact, Step


def ttl_over() -> list[str]:
    daily = once.options(ttl="2s")  # 24 h unless told otherwise
    seen = [daily.run("report:today", bank.book, "report") for _ in range(2)]
    while once.get("report:today"):
        time.sleep(0.05)
    return [*seen, daily.run("report:today", bank.book, "report")]


def ttl_facts(seen: list[str]) -> Iterator[Fact]:
    first, second, third = seen
    yield Fact(f"within the ttl both calls got {first}", first == second)
    yield Fact(f"after it the call ran again and got {third}", third != first)
    yield Fact("the bank booked the report twice", bank.times("report") == 2)


TTL = Step(
    title="The time to live is over",
    scene=ttl_over,
    facts=ttl_facts,
    why="An expired record is the same as none, and is removed in the background.",
)
