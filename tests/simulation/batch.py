"""Many schedules: run one, run a range of them, and say what came of it."""

import gc
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from zlib import crc32

from msgspec import Struct

from tests.simulation import stage
from tests.simulation.oracle import ViolationError
from tests.simulation.world import Injected, World

CHUNK = 250


class Lived(Struct):
    """One schedule, as it was."""

    seed: int
    trace: int
    steps: int
    seen: frozenset[str]
    injected: tuple[Injected, ...]
    violation: str = ""
    told: tuple[str, ...] = ()


class Sum(Struct):
    """Many schedules, added up."""

    schedules: int = 0
    steps: int = 0
    trace: int = 0
    seen: Counter[str] = Counter()
    violations: list[tuple[int, str]] = []

    def add(self, other: "Sum") -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.trace ^= other.trace
        self.seen = self.seen + other.seen
        self.violations = sorted(self.violations + other.violations)


def prepare() -> None:
    """This process can live through schedules, and spends little time on tidying up."""
    stage.install()
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")  # nor is what is cut off
    logging.getLogger("oncekey").addHandler(logging.NullHandler())  # what is refused is expected
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 50, 1_000)


def live(seed: int, only: frozenset[Injected] | None = None, *, tell: bool = False) -> Lived:
    """One schedule; `only` leaves every other fault out."""
    world = World(seed, only)
    if tell:
        world.told = []
    violation = ""
    try:
        world.run()
    except ViolationError as error:
        violation = str(error)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a schedule is a finding
        violation = f"a schedule ends without an error of its own: {error!r}"
    lived = Lived(
        seed,
        world.trace,
        world.steps,
        frozenset(world.seen),
        tuple(world.injected),
        violation,
        tuple(world.told or ()),
    )
    world.close()
    return lived


def live_range(what: tuple[int, int, bool]) -> Sum:
    """So many schedules from one seed on; each a second time where that is wanted."""
    first, count, twice = what
    total, seen = Sum(seen=Counter(), violations=[]), Counter[str]()
    for seed in range(first, first + count):
        lived = live(seed)
        total.schedules += 1
        total.steps += lived.steps
        total.trace ^= crc32(b"%d %d" % (seed, lived.trace))
        seen.update(lived.seen)
        if twice and not lived.violation and live(seed).trace != lived.trace:
            lived.violation = "a seed lived twice leaves the same trace"
        if lived.violation:
            total.violations.append((seed, lived.violation))
    total.seen = seen
    return total


def live_many(first: int, count: int, workers: int, *, twice: bool = False) -> Iterator[Sum]:
    """All schedules, in pieces as they come."""
    pieces = [
        (start, min(CHUNK, first + count - start), twice)
        for start in range(first, first + count, CHUNK)
    ]
    if workers == 1:
        prepare()
        yield from map(live_range, pieces)
        return
    with get_context("spawn").Pool(workers, prepare) as pool:
        yield from pool.imap_unordered(live_range, pieces)
