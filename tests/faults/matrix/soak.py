"""Row F24: workers of every store go on for minutes while everything that can break does.

It goes in rounds, so that what is to be compared fits into memory: in each the workers go through
new keys under random troubles, then all troubles end, every key is asked for once more, and the
histories are compared with the ledger.
"""

import shutil
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from oncekey.policy import seconds as seconds_of
from tests.faults.line import LossyLine, is_redis_verb
from tests.faults.matrix.crowd import Crowd
from tests.faults.matrix.lab import Lab, Run
from tests.faults.matrix.points import POINTS
from tests.faults.matrix.rows_network import Sometimes, through
from tests.faults.matrix.rows_stores import Outages
from tests.faults.matrix.spec import Surface
from tests.faults.matrix.store_servers import RedisPlace
from tests.faults.matrix.verdict import Figures, judge

ROUND = 45.0
SHORTEST = 5.0
OUTAGES = (6.0, 12.0)
SMALL_OUTAGES = (0.3, 1.0)
FAILS = [f"{point}:kill@0.0003" for point in POINTS]


class Group(NamedTuple):
    """Workers of one kind. Each group has keys of its own: a key means one thing only."""

    surface: Surface
    workers: int
    callers: int
    lossy: bool = False


GROUPS: dict[str, tuple[Group, ...]] = {
    "sqlite": (Group("function", 2, 4),),
    "redis": (Group("coroutine", 2, 12), Group("http", 2, 6, lossy=True)),
    "postgres": (Group("coroutine", 2, 12), Group("job", 2, 4)),
    "mariadb": (Group("coroutine", 2, 12), Group("job", 2, 4)),
}
APART = 10_000_000


class Soaked(Struct, kw_only=True):
    """What a soak came to."""

    seconds: float
    rounds: int = 0
    kills: int = 0
    stops: int = 0
    outages: int = 0
    replies_lost: int = 0
    stores: dict[str, Figures] = {}
    kept: list[str] = []
    """Where the histories are that broke a promise."""

    @property
    def operations(self) -> int:
        """Of all stores."""
        return sum(one.operations for one in self.stores.values())

    @property
    def passed(self) -> bool:
        """Whether nothing that is promised was broken. Every round has met all troubles."""
        return self.rounds > 0 and all(one.clean for one in self.stores.values())


class Troubles:
    """Kills, pauses and outages, at random."""

    def __init__(self, lab: Lab, places: dict[str, Any]) -> None:
        self._random = lab.random
        self._next = time.monotonic() + 0.5
        self._stopped: dict[str, float] = {}
        every = SMALL_OUTAGES if lab.small else OUTAGES
        self._outages = [
            Outages(lab, place, every=every) for place in places.values() if place.server
        ]

    def __call__(self, crowd: Crowd) -> None:
        now = time.monotonic()
        for outage in self._outages:
            outage(crowd)
        for name, until in list(self._stopped.items()):
            if now > until:
                crowd.go_on(name)
                del self._stopped[name]
        names = sorted(set(crowd.running) - set(self._stopped))
        if now < self._next or not names:
            return
        self._next = now + self._random.uniform(0.1, 1.0)
        name = self._random.choice(names)
        if self._random.random() < 0.7:
            crowd.kill(name)
        else:
            crowd.stop(name)
            self._stopped[name] = now + self._random.uniform(0.2, 2.5)

    def end(self, crowd: Crowd) -> None:
        """Everything works again."""
        for outage in self._outages:
            outage.heal(crowd)
        for name in self._stopped:
            crowd.go_on(name)
        self._stopped.clear()

    @property
    def outages(self) -> int:
        return sum(outage.count for outage in self._outages)

    def met(self, crowd: Crowd) -> bool:
        """Return whether there was one of each kind."""
        outages = all(outage.count for outage in self._outages)
        return bool(crowd.kills and crowd.stops and outages)


def soak_in(lab: Lab, length: float, stores: list[str], tell: Any) -> Soaked:
    """What came of soaking these stores for so many seconds, and for one round at least."""
    soaked = Soaked(seconds=0.0)
    with ExitStack() as stack:
        places = {store: lab.places.get(store) for store in stores}
        line: LossyLine | None = None
        if "redis" in stores:
            redis: RedisPlace = places["redis"]
            line = LossyLine(redis.port, is_redis_verb)
            line.plan = Sometimes(0.02)
            stack.callback(line.close)
        started, left = time.monotonic(), length
        while left > SHORTEST or not soaked.rounds:
            one_round(lab, min(ROUND, left * 0.8), places, line, soaked)
            soaked.rounds += 1
            soaked.replies_lost = line.lost if line is not None else 0
            soaked.seconds = round(time.monotonic() - started, 1)
            tell(soaked)
            left = length - soaked.seconds
    return soaked


def one_round(
    lab: Lab, length: float, places: dict[str, Any], line: LossyLine | None, soaked: Soaked
) -> None:
    """So many seconds of trouble, and what came of it added to the rest.

    It takes longer where the machine is too slow to have met every kind of trouble by then.
    """
    crowd = Crowd(lab.herd)
    over = time.monotonic() + length
    runs = groups(lab, length, places, line)
    try:
        for number, (store, run, folder) in enumerate(runs):
            for one in range(run.workers):
                crowd.start(lab.spec(run, folder, f"w{one}-{number}-{store}"))
        troubles = Troubles(lab, places)

        def each() -> None:
            if time.monotonic() < over or not troubles.met(crowd):
                troubles(crowd)
            elif not (runs[0][2] / "over").exists():
                troubles.end(crowd)
                for _, _, folder in runs:
                    (folder / "over").touch()

        crowd.until_done(each)
        soaked.kills += crowd.kills
        soaked.stops += crowd.stops
        soaked.outages += troubles.outages
        for store, run, folder in runs:
            lab.sweep(run, folder, crowd, name=f"sweep-{run.surface}-{store}")
    except BaseException:
        crowd.end()
        raise
    for store, run, folder in runs:
        figures = judge(folder, "keyed")
        add(soaked.stores.setdefault(store, Figures()), figures)
        put_away(lab, folder, f"soak {store} {run.surface} {soaked.rounds}", figures, soaked)


def put_away(lab: Lab, folder: Path, name: str, figures: Figures, soaked: Soaked) -> None:
    """The histories of a round are gone, unless they broke a promise."""
    if figures.clean:
        shutil.rmtree(folder)
    else:
        soaked.kept.append(str(lab.keep(folder, name)))


def groups(
    lab: Lab, length: float, places: dict[str, Any], line: LossyLine | None
) -> list[tuple[str, Run, Path]]:
    """The groups of each store, with a folder for each."""
    runs = []
    for store, place in places.items():
        url = place.fresh()
        for number, group in enumerate(GROUPS[store]):
            here = url
            if group.lossy and line is not None:
                here = through(url, place.port, line.port)
            options = {
                "fails": FAILS,
                "lease": "1s",
                "callers": group.callers,
                "first": number * APART,
            }
            run = Run(
                place=here,
                surface=group.surface,
                workers=group.workers,
                seconds=length,
                options=options,
            )
            runs.append((store, run, lab.folder()))
    return runs


def add(total: Figures, more: Figures) -> None:
    """The figures of another round are added."""
    for name in (
        "keys",
        "operations",
        "asked_again",
        "doubled",
        "lost",
        "mismatched",
        "stuck",
        "held",
        "tangled",
        "fenced",
    ):
        setattr(total, name, getattr(total, name) + getattr(more, name))
    for name, count in more.refused.items():
        total.refused[name] = total.refused.get(name, 0) + count
    for name, count in more.told.items():
        total.told[name] = total.told.get(name, 0) + count
    total.slowest = max(total.slowest, more.slowest)


def length_of(text: str, *, small: bool) -> float:
    """Seconds; too few of them would show nothing, unless it is small and shall not."""
    length = seconds_of(text, "--soak")
    if length < 2 * SHORTEST and not small:
        raise SystemExit(f"a soak takes {2 * SHORTEST:.0f} s or more, not {text}")
    return length
