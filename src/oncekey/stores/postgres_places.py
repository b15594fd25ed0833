"""Where the connections of a PostgreSQL store live: those of a process, or of each loop."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import psycopg
from msgspec import Struct
from psycopg.conninfo import conninfo_to_dict

from oncekey.duration import Duration, seconds
from oncekey.errors import ConfigurationError, StoreError
from oncekey.fork import renew_after_fork

L = TypeVar("L")

_PER_MILLE: Final = 1000


class Target(Struct, frozen=True):
    """Which database, and how to reach it: by connections of ours, or by a pool of the caller."""

    conninfo: str
    where: str
    options: dict[str, Any]
    size: int
    patience: float
    pool: Any = None

    @classmethod
    def of(cls, given: object, size: int, patience: Duration) -> Target:
        """What the caller named, checked as far as that can be done without connecting."""
        wait = seconds(patience, "patience")
        if not isinstance(given, str):
            if not callable(getattr(given, "getconn", None)):
                msg = (
                    f"a PostgreSQL store needs a postgresql:// URL, a conninfo string or a pool of "
                    f"psycopg_pool, but it got {type(given).__name__}"
                )
                raise ConfigurationError(msg)
            return cls("", "the pool's address", {}, size, wait, given)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            msg = f"size must be a number of connections, at least 1, but it is {size!r}"
            raise ConfigurationError(msg)
        try:
            named = conninfo_to_dict(given)
        except psycopg.Error as error:  # its words may quote what was given, password included
            msg = "the PostgreSQL URL cannot be read; write postgresql://user@host:5432/database"
            raise ConfigurationError(msg) from error.with_traceback(None)
        host = named.get("host") or named.get("hostaddr") or "the local socket"
        where = f"{host}:{named.get('port') or 5432}/{named.get('dbname') or ''}"
        return cls(given, where, _options(named, wait), size, wait)


def _options(named: dict[str, Any], wait: float) -> dict[str, Any]:
    usual = {
        "connect_timeout": max(2, round(wait)),  # libpq counts whole seconds, from two
        "tcp_user_timeout": round(2 * wait * _PER_MILLE),
        "fallback_application_name": "oncekey",
    }
    options = {name: value for name, value in usual.items() if name not in named}
    return options | {"autocommit": True, "client_encoding": "utf8"}


def stale(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has hung up, told without asking it.

    It says nothing on an idle connection that it keeps; when it ends one, there is something
    to read. A statement that was not sent is a statement that surely did not happen.
    """
    if connection.closed:
        return True
    socket = select.poll()
    socket.register(connection.fileno(), select.POLLIN)
    return bool(socket.poll(0))


class Gate:
    """So many threads at a time, and nobody waits for ever."""

    def __init__(self, patience: float, places: int = 1) -> None:
        """Open."""
        self._places = threading.Semaphore(places)
        self._patience = patience

    def __enter__(self) -> None:
        if not self._places.acquire(timeout=self._patience):
            raise _nobody_came()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._places.release()


class AsyncGate:
    """The same for the tasks of one loop."""

    def __init__(self, patience: float, places: int = 1) -> None:
        """Open."""
        self._places = asyncio.Semaphore(places)
        self._patience = patience

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
        self._inherited: list[L] = []
        renew_after_fork(self)

    def here(self) -> L:
        """The one of this process."""
        return self._link

    def after_fork(self) -> None:
        """The parent's is never touched again, not even to close it."""
        self._inherited.append(self._link)
        self._link = self._make()


class PerLoop(Generic[L]):
    """One of them for each running loop; those of loops that were closed are dropped."""

    def __init__(self, make: Callable[[], L]) -> None:
        """`make` opens nothing."""
        self._make = make
        self._links: dict[asyncio.AbstractEventLoop, L] = {}
        self._inherited: list[object] = []
        renew_after_fork(self)

    def here(self) -> L:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        link = self._links.get(loop)
        if link is None:
            for other in list(self._links):
                if other.is_closed():
                    self._links.pop(other, None)
            link = self._links[loop] = self._make()
        return link

    def after_fork(self) -> None:
        """The parent's are never touched again, not even to close them."""
        self._inherited.append(self._links)
        self._links = {}
