"""Rows about PgBouncer between the workers and PostgreSQL: `make faults` installs it."""

import shutil
import tempfile
from pathlib import Path

from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.lab import Lab, Result, Run
from tests.faults.matrix.rows_stores import Outages
from tests.faults.matrix.spec import Surface
from tests.faults.matrix.store_servers import PostgresPlace
from tests.system.pgbouncer.server import PgBouncer


class PooledPlace:
    """A database behind a PgBouncer of its own. What is killed is the PgBouncer."""

    server = True

    def __init__(self, database: PostgresPlace, pool_mode: str) -> None:
        # Not in the folder of the run, which only its owner may enter.
        self._folder = Path(tempfile.mkdtemp(prefix="oncekey-pgbouncer-"))
        self._database = database
        self._pool = PgBouncer(self._folder, database.postgres, pool_mode)
        self._pool.start()

    def fresh(self) -> str:
        """The URL of a store without records, through the pool."""
        return self._pool.url(self._database.fresh().rpartition("/")[2])

    def kill(self) -> None:
        """It is gone, with the connections on both of its sides."""
        self._pool.process.kill()
        self._pool.process.wait()

    def start(self) -> None:
        """It answers at the same port."""
        self._pool.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)


def _pooled(surface: Surface, pool_mode: str) -> Cell:
    """F29: sessions are shared, and the pool goes away and comes back."""

    def run(lab: Lab, store: str) -> Result:
        every = (0.5, 1.0) if lab.small else (1.5, 3.5)
        with lab.places.alone(PooledPlace, lab.places.get(store), pool_mode) as place:
            url = place.fresh()
            outages = Outages(lab, place, every=every)
            figures = lab.crowd(
                Run(
                    place=url,
                    surface=surface,
                    seconds=3.0 if lab.small else 15.0,
                    options={"lease": "1s"},
                ),
                outages,
                heal=outages.heal,
            )
        return Result(
            figures=figures,
            passed=figures.clean and outages.count > 0,
            promise="0 doubled, 0 lost",
            notes={"times killed": outages.count},
        )

    return run


for _pool_mode in ("session", "transaction", "statement"):
    for _surface in ("function", "coroutine", "leased"):
        if (_surface, _pool_mode) != ("leased", "statement"):  # which an inbox refuses
            cell(
                "F29", f"PgBouncer, {_pool_mode} mode, is killed", ("postgres",), surface=_surface
            )(_pooled(_surface, _pool_mode))
