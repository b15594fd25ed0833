"""One run: every measurement, one after the other, in this process."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import crowd_rows, memory_rows, sqlite_rows
from bench.facts import facts
from bench.interleave import Tick
from bench.redis_server import NoServerError, redis_server
from bench.row import Row
from bench.settings import Settings


@dataclass(frozen=True)
class Report:
    """Everything that a run has to say."""

    settings: Settings
    machine: dict[str, str]
    rows: list[Row]

    @property
    def missed(self) -> list[Row]:
        """The rows that are not as they must be, or could not be measured."""
        return [row for row in self.rows if row.target and not row.met]


def ticks(settings: Settings) -> int:
    """How often a run with a redis-server and two cores ticks."""
    return settings.rounds * (4 + 2 + 4) + 3


def run(settings: Settings, tick: Tick, *, beside: Path | None = None) -> Report:
    """Measure. The files stand in a temporary folder, on the file system of `beside` if given."""
    with ExitStack() as opened:
        made = tempfile.TemporaryDirectory(prefix="oncekey-bench-", dir=beside)
        folder = Path(opened.enter_context(made))
        try:
            server = opened.enter_context(redis_server())
        except NoServerError:
            server = None
        machine = facts(folder, server)
        rows = sqlite_rows.new_keys(folder, settings, tick)
        rows.append(sqlite_rows.duplicates(folder, settings, tick))
        rows += sqlite_rows.counts(folder, settings)
        tick()
        rows += memory_rows.memory(server, settings, tick)
        rows.append(crowd_rows.crowd_of_threads(folder, settings))
        tick()
        rows.append(crowd_rows.crowd_of_tasks(folder, settings))
        tick()
    return Report(settings, machine, rows)
