"""Limits and owners of the connections of a store: per process, or per loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

from oncekey.compat import leave_alone, renew_after_fork, running_loop
from oncekey.errors import StoreError

L = TypeVar("L")


class Gate:
    """Limit the number of threads, or use a given lock. Waiting has a time-out.

    The places are items in a queue, which costs a tenth of a semaphore of `threading`.
    """

    def __init__(self, server: str, patience: float, places: int = 1, lock: Any = None) -> None:
        """Allow `places` callers at a time, or use `lock`. Wait `patience` seconds for either.

        `server` is named to a caller that waited in vain.
        """
        self._server = server
        self._patience = patience
        self._enter: Callable[..., object]
        self._leave: Callable[[], object]
        self._full: Callable[[], bool]
        if lock:
            self._enter, self._leave, self._full = lock.acquire, lock.release, lock.locked
            return
        free: SimpleQueue[None] = SimpleQueue()
        for _ in range(places):
            free.put(None)
        self._enter, self._leave, self._full = free.get, partial(free.put, None), free.empty

    def full(self) -> bool:
        """Return whether the next caller would have to wait."""
        return self._full()

    def __enter__(self) -> None:
        try:
            entered = self._enter(timeout=self._patience)
        except Empty:
            entered = False
        if entered is False:
            raise _nobody_came(self._server)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()


class AsyncGate:
    """The same for the tasks of one loop."""

    def __init__(self, server: str, patience: float, places: int = 1, lock: Any = None) -> None:
        """Allow `places` callers at a time, or use `lock`. Wait `patience` seconds for either.

        `server` is named to a caller that waited in vain.
        """
        self._server = server
        self._places = lock or asyncio.Semaphore(places)
        self._patience = patience

    def full(self) -> bool:
        """Return whether the next caller would have to wait."""
        return bool(self._places.locked())

    async def __aenter__(self) -> None:
        if not self._places.locked():
            await self._places.acquire()  # does not wait
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            raise _nobody_came(self._server) from None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._places.release()


def _nobody_came(server: str) -> StoreError:
    msg = (
        f"no connection to {server} became free in time; nothing was changed; raise size= if all "
        "of them are busy"
    )
    return StoreError(msg, happened=False, unreachable=True)


class PerProcess(Generic[L]):
    """One object for the process; a forked child makes its own."""

    def __init__(self, make: Callable[[], L]) -> None:
        """Call `make`, which must not open anything."""
        self._make = make
        self._link = make()
        renew_after_fork(self)

    def here(self) -> L:
        """Return the object of this process."""
        return self._link

    def after_fork(self) -> None:
        """Make a new object. The parent's is dropped without closing it."""
        leave_alone(self._link)
        self._link = self._make()


class PerLoop(Generic[L]):
    """One object for each running loop; those of closed loops are dropped."""

    def __init__(self, make: Callable[[], L]) -> None:
        """Call `make` on each loop. It must not open anything."""
        self._make = make
        self._links: dict[asyncio.AbstractEventLoop, L] = {}
        renew_after_fork(self)

    def here(self) -> L:
        """Return the object of the running loop."""
        loop = running_loop()
        link = self._links.get(loop)
        if link is None:
            for other in list(self._links):
                if other.is_closed():
                    self._links.pop(other, None)
            link = self._links[loop] = self._make()
        return link

    def after_fork(self) -> None:
        """Drop the parent's objects without closing them."""
        leave_alone(self._links)
        self._links = {}
