"""One run: every measurement, one after the other, in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.cases import (
    breaker,
    crowd,
    events,
    growth,
    http,
    http_memory,
    imports,
    inbox,
    jobs,
    many,
    memory,
    mysql,
    observe,
    outbox,
    peers,
    postgres,
    redis,
    sqlite,
    where,
)
from bench.redis_server import Server, redis_server
from bench.report.machine import facts
from bench.report.rows import Report, Row
from bench.settings import Settings
from bench.timing import Tick
from tests.servers.programs import MissingProgramError


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
    rows = sqlite.new_keys(place.folder, place.settings, place.tick)
    rows.append(sqlite.duplicates(place.folder, place.settings, place.tick))
    rows += sqlite.counts(place.folder, place.settings)
    place.tick()
    return rows


def _crowd(place: Place) -> list[Row]:
    rows = [crowd.crowd_of_threads(place.folder, place.settings)]
    place.tick()
    rows.append(crowd.crowd_of_tasks(place.folder, place.settings))
    place.tick()
    return rows


PARTS: Final = {
    "sqlite": Part(_sqlite, lambda told: told.rounds * 6 + 1),
    "memory": Part(
        lambda place: memory.memory(place.server, place.settings, place.tick),
        lambda told: told.rounds * 5,
    ),
    "import": Part(
        lambda place: [imports.import_row(place.settings, place.tick)],
        lambda told: told.rounds * 4,
    ),
    "redis": Part(
        lambda place: redis.redis_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 8,
    ),
    "redis-many": Part(
        lambda place: many.redis_many(place.server, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "postgres": Part(
        lambda place: postgres.postgres_rows(place.folder, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "postgres-many": Part(
        lambda place: many.postgres_many(place.folder, place.settings, place.tick),
        lambda told: max(2, told.rounds // 2) * 2,
    ),
    "mysql": Part(
        lambda place: mysql.mysql_rows(place.folder, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "inbox": Part(
        lambda place: inbox.inbox_rows(place.folder, place.settings, place.tick),
        lambda told: told.rounds * 6,
    ),
    "outbox": Part(
        lambda place: outbox.outbox_rows(place.folder, place.settings, place.tick),
        outbox.turns,
    ),
    "jobs": Part(
        lambda place: jobs.jobs_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 8,
    ),
    "events": Part(
        lambda place: events.events_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 4 + 1,
    ),
    "observe": Part(
        lambda place: observe.observe_rows(place.server, place.settings, place.tick),
        lambda told: told.rounds * 4,
    ),
    "where": Part(
        lambda place: where.where_rows(place.server, place.folder, place.settings, place.tick),
        where.turns,
    ),
    "crowd": Part(_crowd, lambda _: 2),
    "breaker": Part(
        lambda place: [breaker.breaker_row(place.server, place.settings, place.tick)],
        lambda told: told.rounds * 3,
    ),
    "growth": Part(
        lambda place: growth.growth_rows(place.folder, place.settings, place.tick),
        growth.turns,
    ),
    "peers": Part(
        lambda place: peers.peer_rows(place.server, place.folder, place.settings, place.tick),
        peers.turns,
    ),
    "http": Part(
        lambda place: http.http_rows(place.server, place.settings, place.tick),
        http.turns,
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
