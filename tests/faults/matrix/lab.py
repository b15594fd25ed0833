"""Where rows are run: one crowd in one folder on one store, then healed, swept and judged."""

import random
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from oncekey import Once
from tests.faults.matrix.crowd import Crowd, Herd
from tests.faults.matrix.ledger import Arrival, Ledger, arrivals
from tests.faults.matrix.own_transaction import effects, prepare
from tests.faults.matrix.spec import BLOCK, SCOPE, UNBOUNDED, Mode, Spec, Surface
from tests.faults.matrix.store_servers import Places
from tests.faults.matrix.verdict import Figures, judge

KEPT = Path("build") / "faults"
"""Where the histories of what went wrong are left for whoever looks for the reason."""

T = TypeVar("T")
Trouble = Callable[[Crowd], None]
"""Called again and again while the crowd works."""


class Result(Struct, kw_only=True):
    """What a cell of the matrix came to."""

    figures: Figures
    passed: bool
    promise: str
    """What had to be so; where nothing is promised, what was shown."""
    notes: dict[str, Any] = {}


class Run(Struct, kw_only=True):
    """A crowd: how many workers with which options."""

    place: str
    surface: Surface = "function"
    mode: Mode = "keyed"
    keys: int = 200
    seconds: float = 0.0
    """With it, the workers go on for so long, through as many keys as they come to."""
    workers: int = 3
    options: dict[str, Any] = {}
    """Further fields of `Spec`."""


class Lab:
    """What every cell of a run of the matrix shares."""

    def __init__(self, herd: Herd, places: Places, folder: Path, *, small: bool) -> None:
        self.herd, self.places, self.small = herd, places, small
        self._folder = folder
        self.made: list[Path] = []
        self.random = random.Random(20260101)  # noqa: S311 - the same troubles in every run
        self.progress: Callable[[float], None] = lambda _: None
        self.failovers = 0
        """How many fail-overs a row about them needs; 0: each fault once."""
        self.operations = 0
        """How many operations it needs at least, of all its workers."""
        self.told: Callable[[str], None] = lambda _: None
        self._shared: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several cells share, made for the first of them."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]  # type: ignore[no-any-return]  # it is what `make` gave

    def folder(self) -> Path:
        """An empty one."""
        folder = self._folder / f"run-{len(self.made)}"
        folder.mkdir()
        self.made.append(folder)
        return folder

    def keep(self, folder: Path, name: str) -> Path:
        """Where the folder is from now on; the one that was there before is gone."""
        place = KEPT / name.replace(" ", "-")
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(folder, place)
        return place

    def crowd(self, run: Run, trouble: Trouble = lambda _: None, *, heal: Any = None) -> Figures:
        """The figures of the crowd under this trouble. `heal` is called before the sweep."""
        folder = self.folder()
        crowd = Crowd(self.herd)
        if run.surface == "atomic":
            prepare(run.place)
        over = time.monotonic() + run.seconds

        def each() -> None:
            trouble(crowd)
            if run.seconds and time.monotonic() > over:
                (folder / "over").touch()

        try:
            for number in range(run.workers):
                crowd.start(self.spec(run, folder, f"w{number}"))
            crowd.until_done(each)
            if heal is not None:
                heal(crowd)
            self.sweep(run, folder, crowd)
        except BaseException:
            crowd.end()
            raise
        if run.surface == "atomic":
            copy(run.place, folder)
        return judge(folder, run.mode, kills=crowd.kills)

    @staticmethod
    def spec(run: Run, folder: Path, name: str) -> Spec:
        """What this worker is told."""
        return Spec(
            name=name,
            folder=str(folder),
            place=run.place,
            surface=run.surface,
            mode=run.mode,
            keys=UNBOUNDED if run.seconds else run.keys,
            until=str(folder / "over") if run.seconds else "",
            **run.options,
        )

    def sweep(self, run: Run, folder: Path, crowd: Crowd, name: str = "sweep") -> None:
        """With all trouble over, every key is asked for once more, and must be answered."""
        if run.mode == "held":
            resolve(run.place, folder)
        reached = [int(path.read_text() or 0) for path in folder.glob("progress.w*")]
        keys = run.keys
        if run.seconds:  # inside a block the order is another one for each worker
            keys = -(-max(reached) // BLOCK) * BLOCK
        spec = replace(
            self.spec(run, folder, name),
            keys=keys,
            fails=[],
            poison=0,
            until="",
            wait="10s",
            effect=0.0,
            clock=0.0,
            callers=4,
            together=False,
        )
        crowd.start(spec)
        crowd.until_done()


def resolve(place: str, folder: Path) -> None:
    """What an operator does with held records: look whether the effect happened, and say so."""
    found = {one.key: one for one in arrivals(folder)}
    with closing(Once(place, scope=SCOPE, observers=())) as once:
        for record in list(once.scan(scope=SCOPE, status="held")):
            done = found.get(record.key)
            if done is None:
                once.resolve(record.key, retry=True)
            else:
                once.resolve(record.key, result=done.value)


def copy(place: str, folder: Path) -> None:
    """The table of effects, as a ledger."""
    with closing(Ledger(folder)) as ledger:
        for key, value in effects(place):
            ledger.arrive(Arrival(key, 0, "", "database", value))
