"""Fail-overs under load: the leader breaks again and again, and workers of several kinds go on.

It goes in rounds, so that what is to be compared fits into memory: in each the workers go through
new keys while every fault happens once, then every key is asked for once more, and the histories
are compared with the ledger. All groups of workers meet the same fail-overs.
"""

import shutil
import statistics
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from tests.faults.matrix.crowd import Crowd
from tests.faults.matrix.history import lines
from tests.faults.matrix.lab import KEPT, Lab, Run, copy
from tests.faults.matrix.own_transaction import prepare
from tests.faults.matrix.soak import add
from tests.faults.matrix.spec import BLOCK, Mode, Surface
from tests.faults.matrix.verdict import Figures, judge
from tests.patience import until

BETWEEN = (0.5, 2.0)
"""Seconds of quiet between two fail-overs."""


class Servers(Protocol):
    """Servers of which one leads, and another one does when that breaks."""

    @property
    def faults(self) -> Sequence[str]:
        """What can happen to the leader."""
        ...

    def fresh(self) -> str:
        """Return the address of a store without records."""
        ...

    def fail_over(self, fault: str) -> None:
        """Break the leader. Return when there is a new one, and the old one follows it."""
        ...

    def close(self) -> None:
        """End all of them."""
        ...


class Group(NamedTuple):
    """Workers of one kind, whose records no other group has."""

    surface: Surface
    mode: Mode
    query: str = ""
    """What is added to the address of the store."""


class Outage(NamedTuple):
    """A fault, and the nanoseconds at which it began and was over."""

    fault: str
    began: int
    ended: int


class Seen(Struct, kw_only=True):
    """What a group of workers saw."""

    figures: Figures
    silences: dict[str, list[float]] = {}
    """For each fault the seconds during which nobody got a new claim."""
    histories: list[str] = []
    """Where those are that have broken a promise."""

    @property
    def notes(self) -> dict[str, object]:
        """What the page shows beside the figures."""
        refused = sum(
            self.figures.refused.get(name, 0) for name in ("StoreError", "NotRecordedError")
        )
        found: dict[str, object] = {
            "fail-overs": sum(map(len, self.silences.values())),
            "refused": refused,
        }
        for fault, silences in self.silences.items():
            median, longest = statistics.median(silences), max(silences)
            words = f"{median:.1f}" if len(silences) == 1 else f"{median:.1f} to {longest:.1f}"
            found[f"no claim when {fault}, s"] = words
        return found


def fail_overs(
    lab: Lab,
    name: str,
    opened: Callable[[], Servers],
    groups: Sequence[Group],
) -> list[Seen]:
    """Return what each group saw, under as many fail-overs and operations as the lab wants."""
    seen = [Seen(figures=Figures()) for _ in groups]
    with closing(opened()) as servers:
        rounds = -(-(lab.failovers or 1) // len(servers.faults))
        for number in range(1, rounds + 1):
            asked = sum(one.figures.operations for one in seen)
            one_round = _Round(lab, servers, groups)
            one_round.work(lab.operations * number / rounds - asked)
            for group, folder, one in zip(groups, one_round.folders, seen, strict=True):
                _count(one, group, folder, one_round.outages, KEPT / f"{name}-{len(lab.made)}")
            figures = [one.figures for one in seen]
            lab.told(
                f"{name}: {number * len(servers.faults)} fail-overs, "
                f"{sum(one.operations for one in figures):,} operations, "
                f"{sum(one.doubled for one in figures)} doubled, "
                f"{sum(one.lost for one in figures)} lost"
            )
    return seen


class _Round:
    """Every fault once, while the workers of all groups go on."""

    def __init__(self, lab: Lab, servers: Servers, groups: Sequence[Group]) -> None:
        self._lab, self._servers = lab, servers
        self._runs = [_run(servers.fresh(), group) for group in groups]
        self.folders = [lab.folder() for _ in groups]
        self.outages: list[Outage] = []

    def work(self, wanted: float) -> None:
        """Return when all faults are over, `wanted` operations were made, and all keys swept."""
        crowd = Crowd(self._lab.herd)
        with ThreadPoolExecutor(1) as pool:
            try:
                for number, (run, folder) in enumerate(zip(self._runs, self.folders, strict=True)):
                    for one in range(run.workers):
                        crowd.start(self._lab.spec(run, folder, f"w{one}-{number}"))
                broken = pool.submit(self._break)

                def each() -> None:
                    if broken.done() and (broken.exception() or sum(self._asked()) >= wanted):
                        for folder in self.folders:
                            (folder / "over").touch()

                crowd.until_done(each)
                broken.result()
                for number, (run, folder) in enumerate(zip(self._runs, self.folders, strict=True)):
                    self._lab.sweep(run, folder, crowd, name=f"sweep-{number}")
                    if run.surface == "atomic":
                        copy(run.place, folder)
            except BaseException:
                crowd.end()
                raise

    def _break(self) -> None:
        until(lambda: all(count > BLOCK for count in self._asked()))
        for fault in self._servers.faults:
            time.sleep(self._lab.random.uniform(*BETWEEN))
            began = time.monotonic_ns()
            self._servers.fail_over(fault)
            self.outages.append(Outage(fault, began, time.monotonic_ns()))
        time.sleep(BETWEEN[0])

    def _asked(self) -> list[int]:
        """Return for each group how many keys its workers have asked for."""
        return [
            sum(int(path.read_text() or 0) for path in folder.glob("progress.w*"))
            for folder in self.folders
        ]


def _count(seen: Seen, group: Group, folder: Path, outages: Sequence[Outage], kept: Path) -> None:
    """Add what a group saw in a round. Keep its histories only if something was broken."""
    figures = judge(folder, group.mode)
    add(seen.figures, figures)
    for fault, silence in silences(folder, outages):
        seen.silences.setdefault(fault, []).append(silence)
    if not figures.clean:
        place = kept.with_name(f"{kept.name}-{group.surface}-{group.mode}")
        shutil.copytree(folder, place, dirs_exist_ok=True)
        seen.histories.append(str(place))
    shutil.rmtree(folder)


def _run(url: str, group: Group) -> Run:
    place = url + group.query
    if group.surface == "atomic":
        prepare(place)
    return Run(
        place=place,
        surface=group.surface,
        mode=group.mode,
        workers=2,
        seconds=inf,
        # The workers leave the servers some time: it is the fail-overs that shall be many.
        options={"lease": "2s", "callers": 2, "effect": 0.005},
    )


def silences(folder: Path, outages: Sequence[Outage]) -> list[tuple[str, float]]:
    """Return for each outage the longest time between two new keys that touches it, in seconds."""
    done = sorted(line.t for line in lines(folder) if line.kind == "ok" and line.ran)
    found = []
    for outage in outages:
        first, last = bisect_left(done, outage.began), bisect_right(done, outage.ended)
        before = done[first - 1] if first else outage.began
        after = done[last] if last < len(done) else outage.ended
        near = [before, *done[first:last], after]
        found.append((outage.fault, max(b - a for a, b in pairwise(near)) / 1e9))
    return found
