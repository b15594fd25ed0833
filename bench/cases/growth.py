"""What a new key costs when the store holds few, many or a million others already.

The three fillings of a store stand side by side on one server, so that they take turns. The new
keys lie anywhere among those that are there: none of them is next to the one before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from bench.cases.full_stores import SCOPE, fill_memory, fill_postgres, fill_redis_with_ttl
from bench.redis_server import redis_server
from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import receipt
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once
from oncekey.stores import Store
from tests.servers.postgres import binaries, serving
from tests.servers.programs import MissingProgramError

_MOST_COST: Final = 1.2
_TITLES: Final = {"memory": "Memory", "redis": "Redis", "postgres": "PostgreSQL"}
_ABSENT: Final = {"redis": "no redis-server was found", "postgres": "no PostgreSQL was found"}

Full = dict[str, str | Store]


def turns(settings: Settings) -> int:
    """How often a run with all stores ticks: for each that is full, and for each turn."""
    return 9 + settings.rounds * 9


def growth_rows(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """Two rows for each store, which hold the fuller ones against the one with few keys."""
    sizes = {"few": settings.few, "many": settings.many, "most": settings.most}
    rows = []
    for name, stores in {
        "memory": _memory(sizes, tick),
        "redis": _redis(sizes, tick),
        "postgres": _postgres(folder, sizes, tick),
    }.items():
        with stores as full:
            timings = _timed(full, settings, tick) if full else None
        rows += [_row(name, size, sizes, timings) for size in ("many", "most")]
    return rows


@contextmanager
def _memory(sizes: dict[str, int], tick: Tick) -> Iterator[Full]:
    full: Full = {}
    for name, count in sizes.items():
        full[name] = fill_memory(count)
        tick()
    yield full


@contextmanager
def _redis(sizes: dict[str, int], tick: Tick) -> Iterator[Full]:
    """Three databases of a server of its own, which nobody else has to share with a million."""
    with ExitStack() as opened:
        try:
            server = opened.enter_context(redis_server())
        except MissingProgramError:
            yield {}
            return
        full: Full = {}
        for database, (name, count) in enumerate(sizes.items()):
            full[name] = url = f"redis://127.0.0.1:{server.port}/{database}"
            fill_redis_with_ttl(url, count)
            tick()
        yield full


@contextmanager
def _postgres(folder: Path, sizes: dict[str, int], tick: Tick) -> Iterator[Full]:
    """Three databases, whose commits wait for the disk."""
    try:
        binaries()
    except MissingProgramError:
        yield {}
        return
    with serving(beside=folder.parent, durable=True) as server:
        urls = {name: server.new_database() for name in sizes}
        for name, count in sizes.items():
            fill_postgres(urls[name], count).close()
            tick()
        yield {**urls}


def _timed(full: Full, settings: Settings, tick: Tick) -> Timings:
    """Each gets as many new keys as the others."""
    with ExitStack() as opened:
        onces = {
            name: opened.enter_context(closing(Once(store, cache=False)))
            for name, store in full.items()
        }
        sides = {name: Side(new_keys(once), settings.grown) for name, once in onces.items()}
        return interleave(sides, rounds=settings.rounds, tick=tick)


def new_keys(once: Once) -> Callable[[int], None]:
    """Work that makes new keys, which lie anywhere among those that are there."""
    charge = once("charge:{order}", scope=SCOPE)(receipt)
    numbers = random.Random()  # noqa: S311 - any numbers will do

    def work(calls: int) -> None:
        for _ in range(calls):
            charge(str(numbers.randrange(10**11, 10**12)), 40)

    return work


def _row(store: str, size: str, sizes: dict[str, int], timings: Timings | None) -> Row:
    cost = None if timings is None else timings.cost(size, "few")
    return Row(
        id=f"growth-{store}-{size}",
        title=f"{_TITLES[store]}, new key, {sizes[size]:,} keys in the store",
        value=0.0 if timings is None else timings.per_call(size) * 1e6,
        unit="µs",
        against=f"the same with {sizes['few']:,}",
        against_value=None if timings is None else timings.per_call("few") * 1e6,
        ratio=cost,
        target=f"at most {_MOST_COST}x",
        met=None if cost is None else cost.median <= _MOST_COST,
        remark=_ABSENT[store] if timings is None else "",
    )
