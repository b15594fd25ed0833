"""One run: every measurement, one after the other, in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from bench import (
    breaker_rows,
    crowd_rows,
    events_rows,
    growth_rows,
    http_memory,
    http_rows,
    inbox_rows,
    jobs_rows,
    many_rows,
    memory_rows,
    observe_rows,
    peer_rows,
    postgres_rows,
    redis_rows,
    sqlite_rows,
    where_rows,
)
from bench.facts import facts
from bench.interleave import Tick
from bench.redis_server import Server, redis_server
from bench.row import Row
from bench.settings import Settings
from tests.servers.programs import MissingProgramError


@dataclass(frozen=True)
class Report:
    """Everything that a run has to say."""

    settings: Settings
    machine: dict[str, str]
    rows: list[Row]
    parts: tuple[str, ...] = ()
    """Which parts were measured, by the names in `PARTS`."""

    @property
    def missed(self) -> list[Row]:
        """The rows that are not as they must be, or could not be measured."""
        return [row for row in self.rows if row.target and not row.met]


class Place(NamedTuple):
    """Where and how a part measures."""

    folder: Path
    server: Server | None
    settings: Settings
    tick: Tick


class Part(NamedTuple):
    """Rows that belong together, and how often they tick."""

    rows: Callable[[Place], list[Row]]
    ticks: Callable[[Settings], int]


def _sqlite(place: Place) -> list[Row]:
    rows = sqlite_rows.new_keys(place.folder, place.settings, place.tick)
    rows.append(sqlite_rows.duplicates(place.folder, place.settings, place.tick))
    rows += sqlite_rows.counts(place.folder, place.settings)
    place.tick()
    return rows


def _crowd(place: Place) -> list[Row]:
    rows = [crowd_rows.crowd_of_threads(place.folder, place.settings)]
    place.tick()
    rows.append(crowd_rows.crowd_of_tasks(place.folder, place.settings))
    place.tick()
    return rows


PARTS: Final = {
    "sqlite": Part(_sqlite, lambda told: told.rounds * 6 + 1),
    "memory": Part(
        lambda place: memory_rows.memory(place.server, place.settings, place.tick),
        lambda told: told.rounds * 5,
    ),
    "redis": Part(
        lambda place: redis_rows.redis_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 8,
    ),
    "redis-many": Part(
        lambda place: many_rows.redis_many(place.server, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "postgres": Part(
        lambda place: postgres_rows.postgres_rows(place.folder, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "postgres-many": Part(
        lambda place: many_rows.postgres_many(place.folder, place.settings, place.tick),
        lambda told: max(2, told.rounds // 2) * 2,
    ),
    "inbox": Part(
        lambda place: inbox_rows.inbox_rows(place.folder, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "jobs": Part(
        lambda place: jobs_rows.jobs_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 8,
    ),
    "events": Part(
        lambda place: events_rows.events_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 4 + 1,
    ),
    "observe": Part(
        lambda place: observe_rows.observe_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 4,
    ),
    "where": Part(
        lambda place: where_rows.where_rows(place.server, place.folder, place.settings, place.tick),
        where_rows.turns,
    ),
    "crowd": Part(_crowd, lambda _: 2),
    "breaker": Part(
        lambda place: [breaker_rows.breaker_row(place.server, place.settings, place.tick)],
        lambda told: told.rounds * 3,
    ),
    "growth": Part(
        lambda place: growth_rows.growth_rows(place.folder, place.settings, place.tick),
        growth_rows.turns,
    ),
    "peers": Part(
        lambda place: peer_rows.peer_rows(place.server, place.folder, place.settings, place.tick),
        peer_rows.turns,
    ),
    "http": Part(
        lambda place: http_rows.http_rows(place.server, place.settings, place.tick),
        http_rows.turns,
    ),
    "http-memory": Part(
        lambda place: [http_memory.memory_row(place.folder, place.settings, place.tick)],
        lambda _: http_memory.PARTS,
    ),
}
"""What can be measured alone, in the order of a whole run."""


def ticks(settings: Settings, parts: Iterable[str] = PARTS) -> int:
    """How often a run with a redis-server and two cores ticks."""
    return sum(PARTS[name].ticks(settings) for name in parts)


def run(
    settings: Settings,
    tick: Tick,
    *,
    beside: Path | None = None,
    parts: Iterable[str] = PARTS,
    keep: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Measure. The files stand in a temporary folder, on the file system of `beside` if given.

    After each part `keep` gets what there is so far: a part that breaks off takes none with it.
    """
    with ExitStack() as opened:
        made = tempfile.TemporaryDirectory(prefix="oncekey-bench-", dir=beside)
        folder = Path(opened.enter_context(made))
        try:
            server = opened.enter_context(redis_server())
        except MissingProgramError:
            server = None
        machine = facts(folder, server)
        place = Place(folder, server, settings, tick)
        report = Report(settings, machine, [])
        for name in parts:
            rows = [*report.rows, *PARTS[name].rows(place)]
            report = Report(settings, machine, rows, (*report.parts, name))
            keep(report)
    return report
