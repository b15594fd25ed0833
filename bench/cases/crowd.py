"""A crowd of duplicates while the original runs: how often the store is asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Final

from bench.report.rows import Row
from bench.settings import Settings
from oncekey import Once
from oncekey.stores import SQLiteStore, Store
from oncekey.stores.base import VERBS

_MOST_VERBS: Final = 10
WAIT: Final = "5min"
"""Longer than the default: on a busy machine a crowd may take long to arrive."""


def crowd_of_threads(folder: Path, settings: Settings) -> Row:
    """One thread runs the call, all others ask for the same."""
    store = CountingStore(SQLiteStore(folder / "crowd-threads.db"))
    runs = count(1)
    together = threading.Barrier(settings.duplicates + 2)
    answers: list[str] = []

    def slow(order: str) -> str:
        time.sleep(settings.seconds)
        return f"{order}, run {next(runs)}"

    slow_once = _once(store)("crowd:{order}", scope="bench", wait=WAIT)(slow)

    def caller() -> None:
        together.wait()
        answers.append(slow_once("one"))

    threads = [threading.Thread(target=caller) for _ in range(settings.duplicates + 1)]
    for thread in threads:
        thread.start()
    together.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    store.close()
    return _row(store, settings, "threads", answers, took)


def crowd_of_tasks(folder: Path, settings: Settings) -> Row:
    """One task runs the call, all others ask for the same."""
    store = CountingStore(SQLiteStore(folder / "crowd-tasks.db"))
    runs = count(1)

    async def slow(order: str) -> str:
        await asyncio.sleep(settings.seconds)
        return f"{order}, run {next(runs)}"

    once = _once(store)
    slow_once: Callable[[str], Any] = once("crowd:{order}", scope="bench", wait=WAIT)(slow)

    async def crowd() -> tuple[list[str], float]:
        start = time.perf_counter()
        answers = await asyncio.gather(*(slow_once("one") for _ in range(settings.duplicates + 1)))
        took = time.perf_counter() - start
        await once.aclose()
        return answers, took

    answers, took = asyncio.run(crowd())
    return _row(store, settings, "tasks", answers, took)


def _once(store: Any) -> Once:
    return Once(store)


def _row(
    store: CountingStore, settings: Settings, kind: str, answers: list[str], took: float
) -> Row:
    assert answers == ["one, run 1"] * (settings.duplicates + 1), "it must run once, for all"
    verbs = store.verbs.total()
    named = ", ".join(f"{count} {verb}" for verb, count in sorted(store.verbs.items()))
    return Row(
        id=f"crowd-{kind}",
        title=f"{settings.duplicates:,} duplicates of a {settings.seconds:g} s call, {kind}",
        value=verbs,
        unit="store calls",
        target=f"at most {_MOST_VERBS}",
        met=verbs <= _MOST_VERBS,
        remark=f"{named}; {took:.2f} s until the last had its answer",
    )


class CountingStore:
    """A store that hands every verb to another one, in both colours, and counts them."""

    def __init__(self, store: Store, verbs: Counter[str] | None = None) -> None:
        """`verbs` has the counts, for whoever asks through whichever colour."""
        self._store = store
        self.verbs: Counter[str] = Counter() if verbs is None else verbs

    def __getattr__(self, name: str) -> Any:
        """What the store has under that name; a verb is counted when it is called."""
        found = getattr(self._store, name)
        return self._counted(name, found) if name in VERBS else found

    def as_async(self) -> CountingStore:
        """The same for coroutines, with the same counts."""
        made: Any = self._store
        return CountingStore(made.as_async(), self.verbs)

    def _counted(self, name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object) -> Any:
            self.verbs[name] += 1
            return verb(*args)

        return call
