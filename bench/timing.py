"""Timing several sides in turn, so that whatever disturbs the machine disturbs all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

Clock = Callable[[], float]
Tick = Callable[[], None]


class Side(NamedTuple):
    """One of the things that are compared: `work(n)` makes n calls."""

    work: Callable[[int], None]
    calls: int


class Spread(NamedTuple):
    """The median of the rounds, and between which two figures the middle half of them lies."""

    median: float
    low: float
    high: float


def spread_of(figures: list[float]) -> Spread:
    low, median, high = statistics.quantiles(figures, n=4, method="inclusive")
    return Spread(median, low, high)


class Timings(dict[str, list[float]]):
    """Seconds per call of each side, one figure for each round."""

    def per_call(self, side: str) -> float:
        """The median over the rounds."""
        return statistics.median(self[side])

    def cost(self, side: str, baseline: str) -> Spread:
        """How many times the baseline a call takes, round by round."""
        pairs = zip(self[side], self[baseline], strict=True)
        return spread_of([mine / theirs for mine, theirs in pairs])

    def speed(self, side: str, baseline: str) -> Spread:
        """How many calls are made while the baseline makes one, round by round."""
        return self.cost(baseline, side)


def interleave(
    sides: Mapping[str, Side], *, rounds: int, tick: Tick, clock: Clock = time.perf_counter
) -> Timings:
    """Run every side once to warm up, then in each round once, every second round backwards."""
    for side in sides.values():
        side.work(side.calls)
    timings = Timings({name: [] for name in sides})
    for number in range(rounds):
        order = list(sides.items())
        for name, side in reversed(order) if number % 2 else order:
            with without_collector():
                start = clock()
                side.work(side.calls)
                took = clock() - start
            timings[name].append(took / side.calls)
            tick()
    return timings


@contextmanager
def without_collector() -> Iterator[None]:
    """Nobody pays here for the garbage of somebody else."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
