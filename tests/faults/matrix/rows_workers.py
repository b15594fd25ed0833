"""Rows about workers: killed, crowded, stopped, with a wrong clock."""

import time

from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.crowd import Crowd
from tests.faults.matrix.lab import Lab, Result, Run
from tests.faults.matrix.points import POINTS
from tests.faults.matrix.spec import Mode, Surface

STORES = ("sqlite", "redis", "postgres", "mariadb")
WITH_SERVER = ("redis", "postgres", "mariadb")


def _killed(surface: Surface, mode: Mode) -> Cell:
    """F1: workers kill themselves at every point of a call."""

    def run(lab: Lab, store: str) -> Result:
        place = lab.places.get(store).fresh()
        chance = 0.02
        options = {
            "fails": [f"{point}:kill@{chance}" for point in POINTS],
            "lease": "300ms",
            "callers": 2,
        }
        keys = 60 if lab.small else 400
        figures = lab.crowd(
            Run(place=place, surface=surface, mode=mode, keys=keys, options=options)
        )
        notes = {"kills": figures.kills}
        enough = figures.kills >= (3 if lab.small else 30)
        if mode == "bare":
            bounded = figures.doubled <= figures.kills and not figures.lost
            promise = "doubled only where a process died: shown"
            return Result(figures=figures, passed=bounded and enough, promise=promise, notes=notes)
        return Result(
            figures=figures,
            passed=figures.clean and enough,
            promise="0 doubled, 0 lost",
            notes=notes,
        )

    return run


for _surface, _mode, _stores in (
    ("function", "keyed", STORES),
    ("function", "reconciled", STORES),
    ("function", "held", STORES),
    ("function", "bare", STORES),
    ("coroutine", "keyed", STORES),
    ("job", "keyed", STORES),
    ("http", "keyed", STORES),
    ("leased", "keyed", ("sqlite", "postgres", "mariadb")),
    ("atomic", "atomic", ("sqlite", "postgres", "mariadb")),
):
    cell(
        "F1",
        "a worker is killed at each of seven points",
        _stores,
        surface=_surface,
        mode=_mode,
    )(_killed(_surface, _mode))  # type: ignore[arg-type]  # literals of the table


def _crowded(surface: Surface) -> Cell:
    """F3: 51 callers in 3 processes want the same key at once."""

    def run(lab: Lab, store: str) -> Result:
        place = lab.places.get(store).fresh()
        options = {
            "callers": 17,
            "together": True,
            "effect": 0.02,
            "lease": "20s",
            "wait": "30s",
        }
        figures = lab.crowd(
            Run(
                place=place,
                surface=surface,
                mode="bare",
                keys=12 if lab.small else 150,
                options=options,
            )
        )
        if surface == "naive":
            return Result(
                figures=figures,
                passed=figures.asked_again > 0 and figures.tangled > 0,
                promise="look first, then do: what happens without the product: shown",
                notes={"out of order": figures.tangled},
            )
        return Result(
            figures=figures,
            passed=figures.clean and not figures.asked_again,
            promise="1 effect per key",
            notes={"slowest of 99 %, s": figures.slowest},
        )

    return run


for _surface in ("function", "coroutine", "job", "http", "naive"):
    cell("F3", "51 callers in 3 processes", STORES, surface=_surface, mode="bare")(
        _crowded(_surface)  # type: ignore[arg-type]  # literals of the table
    )


def _stopped(surface: Surface) -> Cell:
    """F4: a worker stands still for three leases, is taken over, and goes on."""

    def run(lab: Lab, store: str) -> Result:
        place = lab.places.get(store).fresh()
        lease = 0.3
        since: dict[str, float] = {}

        def trouble(crowd: Crowd) -> None:
            for name in crowd.stopped():
                began = since.setdefault(name, time.monotonic())
                if time.monotonic() - began > 3 * lease:
                    crowd.go_on(name)
                    del since[name]

        chance = 0.03 if lab.small else 0.02
        points = ("before_effect", "after_effect", "before_settle")
        options = {
            "fails": [f"{point}:stop@{chance}" for point in points],
            "lease": f"{round(lease * 1000)}ms",
            "callers": 2,
        }
        figures = lab.crowd(
            Run(place=place, surface=surface, keys=40 if lab.small else 150, options=options),
            trouble,
        )
        refused = figures.told.get("lost", 0)
        return Result(
            figures=figures,
            passed=figures.clean and (lab.small or refused > 0),
            promise="0 doubled, 0 lost, late settles refused",
            notes={
                "late settles refused": refused,
                "taken over": figures.told.get("taken_over", 0),
                "late effects a fence would refuse": figures.fenced,
            },
        )

    return run


for _surface in ("function", "coroutine", "job"):
    cell("F4", "a worker stands still for 3 leases", STORES, surface=_surface)(
        _stopped(_surface)  # type: ignore[arg-type]  # literals of the table
    )


@cell("F10", "workers' clocks are an hour wrong and jump", WITH_SERVER, mode="bare")
def clocks(lab: Lab, store: str) -> Result:
    """F10: the store's clock counts, so that none of this matters."""
    place = lab.places.get(store).fresh()
    options = {"clock": 3600.0, "lease": "2s", "ttl": "10min"}
    run = Run(place=place, mode="bare", keys=60 if lab.small else 400, options=options)
    figures = lab.crowd(run)
    return Result(
        figures=figures,
        passed=figures.clean and not figures.asked_again,
        promise="0 doubled, 0 lost, 0 stuck",
    )
