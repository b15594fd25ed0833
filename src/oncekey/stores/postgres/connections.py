"""Where the connections of a PostgreSQL store live: those of a process, or of each loop."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from oncekey.compat import leave_alone, renew_after_fork, running_loop
from oncekey.errors import StoreError

if TYPE_CHECKING:
    import psycopg


L = TypeVar("L")


def stale(connection: psycopg.BaseConnection[Any]) -> bool:
    """Whether the server has hung up, told without asking it.

    It says nothing on an idle connection that it keeps; when it ends one, there is something
    to read. A statement that was not sent is a statement that surely did not happen.
    """
    return connection.closed or bool(hearing(connection)(0))


def hearing(connection: psycopg.BaseConnection[Any]) -> Callable[[float], object]:
    """A way to wait so many milliseconds for something to read."""
    socket = select.poll()
    socket.register(connection.pgconn.socket, select.POLLIN)
    return socket.poll


class Gate:
    """So many threads at a time, or those who get the lock, and nobody waits for ever.

    The places are things in a queue, which costs a tenth of a semaphore of `threading`.
    """

    def __init__(self, patience: float, places: int = 1, lock: Any = None) -> None:
        """Open."""
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
        """Whether whoever comes now has to wait."""
        return self._full()

    def __enter__(self) -> None:
        try:
            entered = self._enter(timeout=self._patience)
        except Empty:
            entered = False
        if entered is False:
            raise _nobody_came()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()


class AsyncGate:
    """The same for the tasks of one loop."""

    def __init__(self, patience: float, places: int = 1, lock: Any = None) -> None:
        """Open."""
        self._places = lock or asyncio.Semaphore(places)
        self._patience = patience

    def full(self) -> bool:
        """Whether whoever comes now has to wait."""
        return bool(self._places.locked())

    async def __aenter__(self) -> None:
        if not self._places.locked():
            await self._places.acquire()  # at once
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._places.acquire()
        except TimeoutError:
            raise _nobody_came() from None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._places.release()


def _nobody_came() -> StoreError:
    msg = (
        "no connection to PostgreSQL became free in time; nothing was changed; raise size= if all "
        "of them are busy"
    )
    return StoreError(msg, happened=False, unreachable=True)


class PerProcess(Generic[L]):
    """One of them for the process; a forked child makes its own."""

    def __init__(self, make: Callable[[], L]) -> None:
        """`make` opens nothing."""
        self._make = make
        self._link = make()
        renew_after_fork(self)

    def here(self) -> L:
        """The one of this process."""
        return self._link

    def after_fork(self) -> None:
        """The parent's is never touched again, not even to close it."""
        leave_alone(self._link)
        self._link = self._make()


class PerLoop(Generic[L]):
    """One of them for each running loop; those of loops that were closed are dropped."""

    def __init__(self, make: Callable[[], L]) -> None:
        """`make` opens nothing."""
        self._make = make
        self._links: dict[asyncio.AbstractEventLoop, L] = {}
        renew_after_fork(self)

    def here(self) -> L:
        """The one of the running loop."""
        loop = running_loop()
        link = self._links.get(loop)
        if link is None:
            for other in list(self._links):
                if other.is_closed():
                    self._links.pop(other, None)
            link = self._links[loop] = self._make()
        return link

    def after_fork(self) -> None:
        """The parent's are never touched again, not even to close them."""
        leave_alone(self._links)
        self._links = {}
