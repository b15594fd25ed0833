"""Stores of both colours as the suite sees them: blocking, and asked by many at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from typing import Any, Final, Protocol

from oncekey.core.requests import Answer, Claim
from oncekey.stores.base import AsyncStore, Store

PATIENCE: Final = 30.0
"""Seconds after which a crowd that does not come together fails the test instead of hanging it."""


class Line(Store, Protocol):
    """A store, and a way to ask it from many sides at the same moment."""

    def claim_together(self, asks: Sequence[Claim]) -> list[Answer]:
        """What each was answered, all having asked at once."""
        ...


class Blocking:
    """A blocking store; a crowd is a thread for each."""

    def __init__(self, store: Store) -> None:
        """The verbs are those of `store`."""
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def claim_together(self, asks: Sequence[Claim]) -> list[Answer]:
        """What each thread was answered; none asks before all stand ready."""
        barrier = threading.Barrier(len(asks))

        def ask_one(ask: Claim) -> Answer:
            barrier.wait(PATIENCE)
            return self._store.claim(ask)

        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(ask_one, asks))


class OnRunner:
    """An async store; each verb runs on one event loop, and a crowd is a task for each."""

    def __init__(self, store: AsyncStore, runner: asyncio.Runner) -> None:
        """The verbs are those of `store`, awaited on the loop of `runner`."""
        self._store = store
        self._runner = runner

    def _run(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - as the verb answers
        async def wait() -> object:
            return await getattr(self._store, name)(*arguments)

        return self._runner.run(wait())

    claim = partialmethod(_run, "claim")
    renew = partialmethod(_run, "renew")
    note = partialmethod(_run, "note")
    settle = partialmethod(_run, "settle")
    release = partialmethod(_run, "release")
    resolve = partialmethod(_run, "resolve")
    forget = partialmethod(_run, "forget")
    get = partialmethod(_run, "get")
    scan = partialmethod(_run, "scan")
    purge = partialmethod(_run, "purge")
    close = partialmethod(_run, "aclose")

    def claim_together(self, asks: Sequence[Claim]) -> list[Answer]:
        """What each task was answered; none asks before all stand ready."""

        async def crowd() -> list[Answer]:
            ready, go = asyncio.Semaphore(0), asyncio.Event()

            async def ask_one(ask: Claim) -> Answer:
                ready.release()
                await go.wait()
                return await self._store.claim(ask)

            tasks = [asyncio.create_task(ask_one(ask)) for ask in asks]
            for _ in asks:
                await ready.acquire()
            go.set()
            return await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

        return self._runner.run(crowd())
