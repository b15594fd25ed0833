"""The connections of the store, and how statements run on them.

`engine_async` has those of an engine of SQLAlchemy.

A caller that needs a new connection opens it, so that it learns at once what is wrong with the
server. There is no background thread or task that a fork, or the end of an event loop, could leave
behind.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from oncekey.compat import generation, pause_async
from oncekey.errors import StoreError
from oncekey.stores.connections import AsyncGate
from oncekey.stores.mysql import schema
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.drivers import (
    FAILURES,
    MySQLLine,
    abandon,
    ask_async,
    close_async,
    connect_async,
    is_stale_async,
)
from oncekey.stores.mysql.errors import (
    PAUSES,
    breaks_off,
    check_idle,
    explain,
    explain_connect,
    explain_preparing,
    pause_after,
    schema_is_gone,
    too_large,
)

if TYPE_CHECKING:
    from oncekey.stores.mysql.drivers import AsyncConnection
    from oncekey.stores.mysql.rows import Row

logger = logging.getLogger("oncekey")

_KEPT: Final = 2
_IDLE: Final = 60.0
"""Two unused connections stay open for good, more of them only for 60 seconds."""
_MIGRATING: Final = 60
"""The time-out in seconds of a step of a migration, which may wait for another migration."""


class Lender(Protocol):
    """Lend a connection to one verb at a time."""

    async def take(self) -> MySQLLine[AsyncConnection]:
        """Return a connection that is idle, and that the server has not closed."""
        ...

    async def give(self, line: MySQLLine[AsyncConnection]) -> None:
        """Give the connection back after the verb. Close it if it is broken."""
        ...

    async def close(self) -> None:
        """Close the connections that are ours."""
        ...


class AsyncMySQLOwn:
    """Connections of our own, opened when needed, and kept."""

    def __init__(self, target: MySQLTarget) -> None:
        """Start without connections."""
        self._target = target
        self._idle: deque[MySQLLine[AsyncConnection]] = deque()
        self._era = 0
        # async only
        self._born = generation()

    # async only
    def __del__(self) -> None:
        """Close the connections of a loop that is closed, but not in a forked child."""
        if self._born == generation():
            for line in self._idle:
                abandon(line.connection)

    async def take(self) -> MySQLLine[AsyncConnection]:
        """Return the connection that was used last, or a new one."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                break
            if not is_stale_async(line.connection):
                return line
            await close_async(line.connection)
        era, target = self._era, self._target
        try:
            return MySQLLine(await connect_async(target, target.timeout), era)
        except FAILURES as error:
            raise explain_connect(error, target.where) from error

    async def give(self, line: MySQLLine[AsyncConnection]) -> None:
        """Keep the connection, unless it is broken or the store was closed meanwhile."""
        if line.broken or line.era != self._era:
            await close_async(line.connection)
            return
        line.since = monotonic()
        self._idle.append(line)
        if len(self._idle) > _KEPT and self._idle[0].since < line.since - _IDLE:
            await close_async(self._idle.popleft().connection)

    async def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._era += 1
        idle, self._idle = self._idle, deque()
        for line in idle:
            await close_async(line.connection)


def lender(target: MySQLTarget) -> Lender:
    """Return the lender for what the caller passed."""
    if target.given is None:
        return AsyncMySQLOwn(target)
    from oncekey.stores.mysql.engine_async import AsyncMySQLEngine

    return AsyncMySQLEngine(target)


class AsyncMySQLLink:
    """Run statements, for any number of tasks of one loop."""

    def __init__(self, target: MySQLTarget) -> None:
        """Start without connections."""
        self._target = target
        self._lender = lender(target)
        self._room = AsyncGate("the MySQL server", target.patience, target.size)
        self._migrating = AsyncGate("the MySQL server", target.patience)
        self._ready = False

    async def run(self, statement: str, smaller: Callable[[], str] | None = None) -> list[Row]:
        """Run one statement. Return its rows. Raise StoreError or ConfigurationError.

        `smaller` returns what to run instead of a statement that is too large for the server.
        """
        async with self._room:
            line = await self._take()
            try:
                if len(statement) > line.largest:
                    statement = self._instead(statement, line.largest, smaller)
                return await self._ask(line, line.settings + statement)
            except FAILURES as error:
                check_idle(error)
                if schema_is_gone(error):
                    self._ready = False
                line.broken = breaks_off(error) or is_stale_async(line.connection)
                raise explain(error, self._target.where) from error
            except StoreError:  # it was not sent
                raise
            except BaseException:  # interrupted: the state of the connection is unknown
                line.broken = True
                raise
            finally:
                await self._lender.give(line)

    def _instead(self, large: str, largest: int, smaller: Callable[[], str] | None) -> str:
        """Return a statement that the server reads. Raise StoreError if there is none."""
        error = too_large(len(large), largest, self._target.where)
        statement = smaller() if smaller is not None else large
        if len(statement) > largest:
            raise error
        logger.warning("a result is not kept: %s", error)
        return statement

    async def close(self) -> None:
        """Close our connections, those in use when they are given back."""
        await self._lender.close()

    async def _take(self) -> MySQLLine[AsyncConnection]:
        """Return a connection whose server was checked. Migrate the database first.

        On failure, the verb was not sent and did not happen.
        """
        while True:
            line = await self._lender.take()
            if line.largest and self._ready:
                return line
            try:
                if await self._prepare(line):
                    return line
            except FAILURES as error:
                line.broken = True
                await self._lender.give(line)
                check_idle(error)
                raise explain_preparing(error, self._target.where) from error
            except BaseException:
                line.broken = True
                await self._lender.give(line)
                raise
            line.broken = True  # closing it gives the lock of the migration back
            await self._lender.give(line)

    async def _ask(self, line: MySQLLine[AsyncConnection], statement: str) -> list[Row]:
        """Run the statement. If it lost to another one, try it a few times more."""
        for longest in PAUSES:
            try:
                return await ask_async(line.connection, statement, self._target.timeout)
            except FAILURES as error:
                await pause_async(pause_after(error, longest))
        return await ask_async(line.connection, statement, self._target.timeout)

    async def _prepare(self, line: MySQLLine[AsyncConnection]) -> bool:
        """Check the server that this connection has reached, and migrate the database if needed.

        Return whether the connection can be used: not the one that has migrated.
        """
        where, seconds = self._target.where, self._target.timeout
        if not line.largest:
            (server,) = await ask_async(line.connection, schema.SERVER, seconds)
            schema.check_server(server, where, lent=bool(line.settings))
            line.largest = schema.largest_statement(server) - len(line.settings)
        if self._ready:
            return True
        async with self._migrating:
            there = not await self._missing(line)
            if not there:
                await self._migrate(line)
            self._ready = True
        return there

    async def _missing(self, line: MySQLLine[AsyncConnection]) -> tuple[tuple[str, ...], ...]:
        """Return the steps that bring the schema up to date."""
        connection, seconds = line.connection, self._target.timeout
        tables = await ask_async(connection, line.settings + schema.TABLES, seconds)
        there = schema.check_tables(tables, self._target.where)
        read = await ask_async(connection, schema.READ, seconds) if there else ()
        await ask_async(connection, "ROLLBACK", seconds)  # one that was lent does not commit itself
        return schema.missing(read)

    async def _migrate(self, line: MySQLLine[AsyncConnection]) -> None:
        """Migrate with longer time-outs, one process at a time."""
        lock = schema.LOCK.format(seconds=_MIGRATING // 2)
        for statement in (*schema.SESSION, lock):
            await ask_async(line.connection, statement, _MIGRATING)
        for step in await self._missing(line):
            for statement in step:
                await ask_async(line.connection, statement, _MIGRATING)
