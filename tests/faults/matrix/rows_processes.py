"""Rows about one process: code that hangs, forks, signals, a lock that it waits for."""

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import psycopg

from oncekey import InProgressError, Once, Policy
from oncekey.core.requests import Claim, Granted
from oncekey.stores import open_store
from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.lab import Lab, Result
from tests.faults.matrix.verdict import Figures
from tests.patience import PATIENCE, until, until_async

STORES = ("sqlite", "redis", "postgres", "mariadb")
ROOT = Path(__file__).parents[3]
A_MOMENT = 0.05


class Tally:
    """Which effects happened, who asked for them, and which of the first runs hang."""

    def __init__(self) -> None:
        self.asked = self.refused = 0
        self.begun: Counter[str] = Counter()
        self.effects: Counter[str] = Counter()
        self.values: dict[str, set[str]] = {}

    def hangs(self, key: str) -> bool:
        """Whether this run hangs: the first of each key does."""
        self.begun[key] += 1
        return self.begun[key] == 1

    def result(self, keys: list[str]) -> Result:
        again = sum(count > 1 for count in self.effects.values())
        figures = Figures(keys=len(keys), operations=self.asked, asked_again=again, doubled=again)
        figures.lost = sum(not self.effects[key] for key in keys)
        figures.mismatched = sum(len(self.values.get(key, ())) > 1 for key in keys)
        figures.stuck = sum(key not in self.values for key in keys)
        figures.refused = {"InProgressError": self.refused}
        return Result(
            figures=figures,
            passed=figures.clean and set(self.begun.values()) == {2},
            promise="free when the lease ends, 0 doubled, 0 stuck",
            notes={"refused before that": self.refused},
        )


class Hanging:
    """Threads hang in the code of keys, for which another thread of the process asks."""

    def __init__(self, once: Once, tally: Tally) -> None:
        self._once, self._tally = once, tally
        self._over = threading.Event()

    def effect(self, key: str) -> str:
        if self._tally.hangs(key):
            self._over.wait(PATIENCE)
            raise TimeoutError  # nothing happened, and nobody asks any more
        self._tally.effects[key] += 1
        return f"{key} {self._tally.begun[key]}"

    def hang(self, key: str) -> None:
        with suppress(Exception):  # it lost its key long ago
            self._once.run(key, self.effect, key)

    def ask(self, key: str, give_up: float) -> None:
        while time.monotonic() < give_up:
            self._tally.asked += 1
            try:
                value = self._once.run(key, self.effect, key)
            except InProgressError as busy:
                self._tally.refused += 1
                time.sleep(max(busy.retry_after, A_MOMENT))
            else:
                self._tally.values.setdefault(key, set()).add(value)
                return

    def run(self, keys: list[str]) -> None:
        threads = [threading.Thread(target=self.hang, args=(key,)) for key in keys]
        try:
            for thread in threads:
                thread.start()
            until(lambda: len(self._tally.begun) == len(keys))
            for key in [*keys, *keys]:
                self.ask(key, time.monotonic() + PATIENCE)
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def hanging(policy: Policy) -> Cell:
    """F25: threads."""

    def run(lab: Lab, store: str) -> Result:
        keys, tally = some_keys(lab), Tally()
        place = lab.places.get(store).fresh()
        with closing(Once(place, cache=False, observers=(), policy=policy)) as once:
            Hanging(once, tally).run(keys)
        return tally.result(keys)

    return run


def some_keys(lab: Lab) -> list[str]:
    return [f"k{number}" for number in range(4 if lab.small else 20)]


class HangingTasks:
    """The same with tasks of one event loop."""

    def __init__(self, once: Once, tally: Tally) -> None:
        self._once, self._tally = once, tally
        self._over = asyncio.Event()

    async def effect(self, key: str) -> str:
        if self._tally.hangs(key):
            await self._over.wait()
            raise TimeoutError
        self._tally.effects[key] += 1
        return f"{key} {self._tally.begun[key]}"

    async def ask(self, key: str, give_up: float) -> None:
        while time.monotonic() < give_up:
            self._tally.asked += 1
            try:
                value = await self._once.run_async(key, self.effect, key)
            except InProgressError as busy:
                self._tally.refused += 1
                await asyncio.sleep(max(busy.retry_after, A_MOMENT))
            else:
                self._tally.values.setdefault(key, set()).add(value)
                return

    async def run(self, keys: list[str]) -> None:
        tasks = [asyncio.create_task(self._once.run_async(key, self.effect, key)) for key in keys]
        await until_async(lambda: len(self._tally.begun) == len(keys))
        for key in [*keys, *keys]:
            await self.ask(key, time.monotonic() + PATIENCE)
        self._over.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._once.aclose()


def hanging_tasks(policy: Policy) -> Cell:
    """F25: tasks."""

    async def all_of_it(place: str, keys: list[str], tally: Tally) -> None:
        once = Once(place, cache=False, observers=(), policy=policy)
        await HangingTasks(once, tally).run(keys)

    def run(lab: Lab, store: str) -> Result:
        keys, tally = some_keys(lab), Tally()
        asyncio.run(all_of_it(lab.places.get(store).fresh(), keys, tally))
        return tally.result(keys)

    return run


_ENDS = Policy(lease="300ms", heartbeat=False, wait=0)
_RENEWED = Policy(lease="300ms", max_run="600ms", wait=0)
for _title, _policy in (
    ("code hangs in the process that is asked again: no heartbeat", _ENDS),
    ("code hangs in the process that is asked again: `max_run`", _RENEWED),
):
    cell("F25", _title, STORES, mode="bare")(hanging(_policy))
    cell("F25", _title, STORES, surface="coroutine", mode="bare")(hanging_tasks(_policy))


@cell("F26", "a process forks while its threads write", STORES, mode="bare")
def forked(lab: Lab, store: str) -> Result:
    """F26: every child can use the store, and the parent goes on."""
    children = 5 if lab.small else 60
    place = lab.places.get(store).fresh()
    words = in_a_process("tests.faults.matrix.forking", place, str(children)).split()
    told = dict(word.split("=", 1) for word in words)
    figures = Figures(keys=int(told["keys"]), operations=int(told["keys"]))
    figures.stuck = int(told["stuck"])
    figures.lost = int(told["lost"])
    return Result(
        figures=figures,
        passed=figures.clean and int(told["children"]) == children,
        promise="every child writes, 0 stuck, 0 lost",
        notes={"children": children},
    )


@cell(
    "F27",
    "signals raise exceptions in the middle of calls",
    ("sqlite", "postgres", "mariadb"),
    mode="bare",
)
def torn(lab: Lab, store: str) -> Result:
    """F27: what a signal has torn is free when its lease is over, and the process goes on."""
    cuts = 20 if lab.small else 300
    place = lab.places.get(store).fresh()
    torn = int(in_a_process("tests.processes.cut_off", place, str(cuts)))
    return Result(
        figures=Figures(keys=torn, operations=2 * torn),
        passed=torn >= cuts,
        promise="every key is answered once its lease is over; other threads go on",
        notes={"calls cut off": torn},
    )


def in_a_process(module: str, *arguments: str) -> str:
    """What the module prints. One that fails or hangs fails its cell."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{module} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


@cell("F28", "a claim waits for a lock longer than its lease", ("sqlite",), mode="bare")
def granted_late(lab: Lab, store: str) -> Result:
    """F28: whoever is granted a key has a whole lease from then on, and nobody else has the key."""
    rounds, lease = (2, 300_000) if lab.small else (10, 300_000)
    wrong = 0
    for _ in range(rounds):
        url = lab.places.get(store).fresh()
        with closing(open_store(url)) as first, closing(open_store(url)) as second:
            first.get(None, "opens the file")
            second.get(None, "opens the file")
            answers: list[tuple[int, object]] = []

            def claim(asked: object, nonce: str, told: list[tuple[int, object]] = answers) -> None:
                ask = Claim(None, "k", nonce=nonce, fingerprint=None, lease=lease, ttl=10**9)
                told.append((time.time_ns() // 1000, asked.claim(ask)))  # type: ignore[attr-defined]  # a store

            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as other:
                other.execute("BEGIN IMMEDIATE")
                threads = [
                    threading.Thread(target=claim, args=(one, name))
                    for one, name in ((first, "a"), (second, "b"))
                ]
                for thread in threads:
                    thread.start()
                time.sleep(3 * lease / 1e6)
                freed = time.time_ns() // 1000
                other.rollback()
                for thread in threads:
                    thread.join()
        granted = [one for _, one in answers if type(one) is Granted]
        ends = [one.record.lease_end for one in granted]
        apart = len(ends) == 2 and abs(ends[0] - ends[1]) < lease
        wrong += not granted or apart or any(end < freed + lease for end in ends)
    figures = Figures(keys=rounds, operations=2 * rounds, doubled=wrong)
    return Result(
        figures=figures,
        passed=not wrong,
        promise="a lease begins when it is granted; 1 owner at a time",
    )


@cell("F28", "an owner asks again, and the answer is written", ("postgres",), mode="bare")
def asked_again(lab: Lab, store: str) -> Result:
    """F28: an own nonce that asks again writes, so that its commit waits as the first one did."""
    url = lab.places.get(store).fresh()
    keys, silent = (5 if lab.small else 100), 0
    with closing(open_store(url)) as own, psycopg.connect(url, autocommit=True) as beside:
        position = "SELECT pg_current_wal_insert_lsn() - '0/0'"
        for number in range(keys):
            ask = Claim(None, f"k{number}", nonce="n", fingerprint=None, lease=10**9, ttl=10**9)
            own.claim(ask)
            before = beside.execute(position).fetchone()
            again = own.claim(ask)
            silent += type(again) is not Granted or beside.execute(position).fetchone() == before
    figures = Figures(keys=keys, operations=2 * keys, lost=silent)
    return Result(
        figures=figures,
        passed=not silent,
        promise="what is answered again is written again",
    )
