"""Function-level peers: a new key and a duplicate, on the same store, in the same rounds as ours.

Each row holds ours against the peer that comes closest; the remark has the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import redis

from bench.cases.many import Tasks
from bench.peers.functions import OPENERS, Bodies, Ways, blocks, install, installed, ours, waits
from bench.peers.late_answers import refuses_late_answers
from bench.redis_server import Server
from bench.report.rows import Row, closest_row
from bench.settings import Settings
from bench.subject import new_order
from bench.timing import Side, Tick, Timings, interleave
from tests.servers.postgres import binaries, serving

OURS: Final = "oncekey"
KINDS: Final = {"new": "new key", "duplicate": "duplicate, cache off"}
_DATABASE: Final = 9
_runs = count()


class Group(NamedTuple):
    """Peers on one store, and how they are called there."""

    id: str
    title: str
    peers: tuple[str, ...]
    callers: tuple[str, ...]


REDIS: Final = Group(
    "redis",
    "Redis",
    ("aws-lambda-powertools", "exactly-once", "idempotency-kit", "idemkit"),
    ("one", "task", "tasks"),
)
POSTGRES: Final = Group(
    "postgres", "PostgreSQL", ("exactly-once", "idemkit", "dbos"), ("one", "task", "tasks")
)
SQLITE: Final = Group("sqlite", "SQLite", ("dbos",), ("one", "tasks"))
HASTY: Final = Group("hasty", "SQLite, synchronous=NORMAL", ("exactly-once",), ("one", "tasks"))
"""That peer does not wait for the disk, so that here we do not either."""


def turns(settings: Settings) -> int:
    """How often a run with all peers ticks."""
    sides = sum(
        1 + len(_able(group.peers, callers))
        for group in (REDIS, POSTGRES, SQLITE, HASTY)
        for callers in group.callers
    )
    return sides * len(KINDS) * settings.peer_rounds


def peer_rows(server: Server | None, folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """A row for each store, each kind of caller, and each kind of key."""
    if settings.fetch:
        install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what peers warn of is not about this program
        return [
            *_redis(server, settings, tick),
            *_postgres(folder, settings, tick),
            *_sqlite(folder, settings, tick),
        ]


def _redis(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    if server is None:
        return _unmeasured(REDIS, settings, "no redis-server was found")
    url = f"redis://127.0.0.1:{server.port}/{_DATABASE}"
    with closing(redis.Redis.from_url(url)) as client:
        fenced = {
            name: refuses_late_answers(OPENERS.get(name, ours), url, client.flushdb)
            for name in (OURS, *filter(installed, REDIS.peers))
        }
        assert fenced[OURS]
        urls = dict.fromkeys((OURS, *REDIS.peers), url)
        rows = _measured(REDIS, urls, settings, tick, remark=_late(fenced))
        client.flushdb()
    return rows


def _late(fenced: dict[str, bool]) -> str:
    refused = ", ".join(name for name, refuses in fenced.items() if refuses)
    kept = ", ".join(name for name, refuses in fenced.items() if not refuses)
    told = (
        f"an answer that came late, when another call had taken its place, is refused by {refused}"
    )
    return f"{told}; it is kept by {kept}" if kept else told


def _postgres(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    try:
        binaries()
    except RuntimeError:
        return _unmeasured(POSTGRES, settings, "no PostgreSQL was found")
    with serving(beside=folder.parent, durable=True) as server:
        urls = {name: server.new_database() for name in (OURS, *POSTGRES.peers)}
        return _measured(POSTGRES, urls, settings, tick)


def _sqlite(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    rows = []
    for group, option in ((SQLITE, ""), (HASTY, "?synchronous=NORMAL")):
        urls = {name: f"sqlite:///{folder / f'{group.id}-{name}.db'}" for name in group.peers}
        urls[OURS] = f"sqlite:///{folder / f'{group.id}-ours.db'}{option}"
        rows += _measured(group, urls, settings, tick)
    return rows


def _measured(
    group: Group, urls: dict[str, str], settings: Settings, tick: Tick, remark: str = ""
) -> list[Row]:
    """The rows of a group. Each side has an event loop of its own."""
    rows = []
    remark = "; ".join(filter(None, [f"medians of {settings.peer_rounds} rounds", remark]))
    there = [name for name in group.peers if installed(name)]
    for callers in group.callers:
        with ExitStack() as opened:
            tasks = settings.tasks if callers == "tasks" else 1
            open_sides = {
                name: opened.enter_context(_opened(name, urls[name], tasks))
                for name in (OURS, *_able(there, callers))
            }
            for kind in KINDS:
                sides = {
                    name: _side(side, callers, kind, settings) for name, side in open_sides.items()
                }
                timings = interleave(sides, rounds=settings.peer_rounds, tick=tick)
                told = _row(group, callers, kind, settings.tasks, timings=timings, remark=remark)
                rows.append(told)
                remark = ""  # once is enough
    return rows


class Opened(NamedTuple):
    """One side, and the loop that its tasks run on."""

    ways: Ways
    tasks: Tasks


@contextmanager
def _opened(name: str, url: str, number: int) -> Iterator[Opened]:
    tasks = Tasks(number)
    bodies = Bodies(numbered, numbered_async)
    with tasks.runner as runner, OPENERS.get(name, ours)(url, bodies, runner) as ways:
        yield Opened(ways, tasks)


def numbered(order: str, amount: int) -> str:
    """Every run answers with another number, so that a replay can be told from a run."""
    return f"receipt {next(_runs)} of {order} over {amount}"


async def numbered_async(order: str, amount: int) -> str:
    return numbered(order, amount)


def _side(side: Opened, callers: str, kind: str, settings: Settings) -> Side:
    ways, tasks = side
    if callers == "one":
        charge = ways.blocking
        assert charge is not None
        known = new_order()
        first = charge(known, 40)
        assert charge(known, 40) == first

        def work(calls: int) -> None:
            for _ in range(calls):
                charge(new_order() if kind == "new" else known, 40)

        return Side(work, settings.peer_calls)
    waiting = ways.waiting
    assert waiting is not None
    each = settings.peer_each if callers == "tasks" else settings.peer_calls
    orders = [new_order() for _ in range(tasks.count)]

    async def call(order: str) -> str:
        return await waiting(order, 40)

    for order in orders:
        assert tasks.runner.run(call(order)) == tasks.runner.run(call(order))
    return tasks.side(call, tasks.count * each, orders if kind == "duplicate" else None)


def _able(peers: Iterable[str], callers: str) -> list[str]:
    can = blocks if callers == "one" else waits
    return [name for name in peers if can(name)]


def _unmeasured(group: Group, settings: Settings, why: str) -> list[Row]:
    return [
        _row(group, callers, kind, settings.tasks, timings=None, remark=why)
        for callers in group.callers
        for kind in KINDS
    ]


def _row(
    group: Group, callers: str, kind: str, tasks: int, *, timings: Timings | None, remark: str
) -> Row:
    words = {"one": "1 caller", "task": "1 task", "tasks": f"{tasks} tasks"}[callers]
    return closest_row(
        timings,
        OURS,
        {name: name for name in _able(group.peers, callers)},
        id_=f"peers-{group.id}-{kind}-{callers}",
        title=f"Peers on {group.title}, {KINDS[kind]}, {words}",
        remark=remark,
    )
