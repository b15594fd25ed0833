"""Who lends the store its connections: itself, a pool of the caller, or the caller's only one.

Whoever needs a new connection makes it, so that it hears at once what is wrong with the server
and waits for no one's retries. There is no thread and no task in the background that a fork, or
the end of an event loop, could leave behind.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import ConnStatus

from oncekey.compat import generation
from oncekey.stores.postgres import schema
from oncekey.stores.postgres.address import Target, check_colour, refuse_transaction
from oncekey.stores.postgres.connections import AsyncGate, hearing, stale
from oncekey.stores.postgres.errors import explain, explain_connect, schema_is_gone
from oncekey.stores.postgres.protocol import Line, Statement, Values, ask_async, say

_BAD: Final = ConnStatus.BAD
_KEPT: Final = 2
_IDLE: Final = 60.0
"""So many unused connections stay open for good; more of them only for so many seconds."""


class Lender(Protocol):
    """Lends a connection to one verb at a time."""

    async def take(self) -> Line[AsyncConnection[Any]]:
        """A connection on which nothing is under way."""
        ...

    async def give(self, line: Line[AsyncConnection[Any]]) -> None:
        """The verb is over, whatever became of it."""
        ...

    async def drop(self, line: Line[AsyncConnection[Any]]) -> None:
        """Nobody knows what the connection would answer next."""
        ...

    async def close(self) -> None:
        """What is ours is closed."""
        ...


class Own:
    """Connections of our own: opened when needed, and kept."""

    def __init__(self, target: Target) -> None:
        """Nothing is opened yet."""
        self._target = target
        self._idle: deque[Line[AsyncConnection[Any]]] = deque()
        self._era = 0
        self._born = generation()

    def __del__(self) -> None:
        """Who forgot to close leaves no connection open. A fork's child leaves its parent's."""
        if self._born == generation():
            for line in self._idle:
                line.connection.pgconn.finish()

    async def take(self) -> Line[AsyncConnection[Any]]:
        """The one that was used last, or a new one."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                break
            if line.hears is not None and not line.hears(0):
                return line
            await line.connection.close()
        era, target = self._era, self._target
        try:
            connection = await AsyncConnection.connect(target.conninfo, **target.options)
        except psycopg.Error as error:
            raise explain_connect(error, target.where) from error
        return Line(connection, era, hearing(connection))

    async def give(self, line: Line[AsyncConnection[Any]]) -> None:
        """Kept for the next verb, unless it broke or the store was closed meanwhile."""
        if line.era != self._era or line.connection.pgconn.status == _BAD:
            await line.connection.close()
            return
        line.since = monotonic()
        self._idle.append(line)
        if len(self._idle) > _KEPT:
            await self._close_the_oldest(line.since - _IDLE)

    async def drop(self, line: Line[AsyncConnection[Any]]) -> None:
        """It is closed."""
        await line.connection.close()

    async def close(self) -> None:
        """All are closed, those in use when they come back."""
        self._era += 1
        idle, self._idle = self._idle, deque()
        for line in idle:
            await line.connection.close()

    async def _close_the_oldest(self, idle_since: float) -> None:
        """One each time, so that nobody who gives a connection back waits long."""
        with suppress(IndexError):  # others take and give meanwhile
            oldest = self._idle.popleft()
            if oldest.since < idle_since:
                await oldest.connection.close()
            else:
                self._idle.appendleft(oldest)


class Pooled:
    """Connections of a pool of the caller, who sets its limits and its time-outs."""

    def __init__(self, target: Target) -> None:
        """The pool need not be open yet."""
        self._target = target
        self._pool = target.given
        self._lines: WeakKeyDictionary[AsyncConnection[Any], Line[Any]] = WeakKeyDictionary()

    async def take(self) -> Line[AsyncConnection[Any]]:
        """One that the server has not ended."""
        try:
            connection: AsyncConnection[Any] = await self._pool.getconn()
            while stale(connection):
                await connection.close()
                await self._pool.putconn(connection)
                connection = await self._pool.getconn()
        except psycopg.Error as error:
            raise explain_connect(error, self._target.where) from error
        line = self._lines.get(connection)
        if line is None:
            line = self._lines[connection] = Line(connection)
        return line

    async def give(self, line: Line[AsyncConnection[Any]]) -> None:
        """The pool has it back, and replaces it if it broke."""
        await self._pool.putconn(line.connection)

    async def drop(self, line: Line[AsyncConnection[Any]]) -> None:
        """The pool looks after what it lent."""

    async def close(self) -> None:
        """The pool stays the caller's to close."""


class Borrowed:
    """The caller's connection, in turn with the caller."""

    def __init__(self, target: Target) -> None:
        """It need not be used yet."""
        self._target = target
        self._line: Line[AsyncConnection[Any]] = Line(target.given)

    async def take(self) -> Line[AsyncConnection[Any]]:
        """The connection, which must not be in a transaction."""
        connection = self._line.connection
        if connection.closed:
            error = psycopg.OperationalError("the connection is closed")
            raise explain_connect(error, self._target.where)
        refuse_transaction(connection.pgconn)
        return self._line

    async def give(self, line: Line[AsyncConnection[Any]]) -> None:
        """It stays the caller's."""

    async def drop(self, line: Line[AsyncConnection[Any]]) -> None:
        """It is for the caller to look after."""

    async def close(self) -> None:
        """It stays the caller's to close."""


def lender(target: Target) -> Lender:
    """The one for what the caller named."""
    if target.given is None:
        return Own(target)
    check_colour(target.given, AsyncConnection)
    return Borrowed(target) if isinstance(target.given, AsyncConnection) else Pooled(target)


# How PostgreSQL is asked: on a connection that is lent, in a schema that is there.


_MIGRATING: Final = 60.0
"""How many seconds a step of a migration may take, waiting for others who do the same included."""


class AsyncLink:
    """A way to run statements, from any number of tasks of one loop."""

    def __init__(self, target: Target) -> None:
        """Nothing is opened before the first statement."""
        self._target = target
        self._lender = lender(target)
        self._room = AsyncGate(target.patience, target.size, target.lock)
        self._migrating = AsyncGate(target.patience)
        self._ready = False

    async def run(self, statement: Statement, values: Values) -> list[bytes]:
        """What one statement answers, which is prepared and a transaction of its own."""
        async with self._room:
            line = await self._lender.take()
            try:
                if not self._ready:
                    async with self._migrating:
                        await self._prepare(line)
                return await ask_async(line, statement, values, self._target.timeout)
            except psycopg.Error as error:
                if schema_is_gone(error):
                    self._ready = False
                raise explain(error, self._target.where, lost=line.connection.closed) from error
            except BaseException:  # cut off: nobody knows what it would answer next
                await self._lender.drop(line)
                raise
            finally:
                await self._lender.give(line)

    async def close(self) -> None:
        """The connections are closed, those in use when they come back, but no caller's."""
        await self._lender.close()

    async def _prepare(self, line: Line[AsyncConnection[Any]]) -> None:
        """The database has the schema. The verb itself was not sent yet, and did not happen."""
        where = self._target.where
        schema.check_server(line.connection.pgconn.server_version, where)
        try:
            if await self._missing(line, self._target.timeout):
                await self._migrate(line)
        except psycopg.Error as error:
            raise (explain_connect if line.connection.closed else explain)(error, where) from error
        self._ready = True

    async def _migrate(self, line: Line[AsyncConnection[Any]]) -> None:
        """One transaction, so that a migration that fails leaves nothing behind."""
        try:
            await self._say(line, schema.BEGIN, _MIGRATING)
            for script in await self._missing(line, _MIGRATING):
                await self._say(line, script, _MIGRATING)
            await self._say(line, b"COMMIT", _MIGRATING)
        except BaseException:
            with suppress(psycopg.Error):
                await self._say(line, b"ROLLBACK", self._target.timeout)
            raise

    async def _missing(self, line: Line[AsyncConnection[Any]], seconds: float) -> tuple[bytes, ...]:
        """The migrations that the database has yet to see."""
        found = await self._say(line, schema.FIND, seconds) == schema.FOUND
        read = await self._say(line, schema.READ, seconds) if found else []
        return schema.missing(read, schema.migrations())

    async def _say(
        self, line: Line[AsyncConnection[Any]], script: bytes, seconds: float
    ) -> list[bytes]:
        return await line.connection.wait(say(line, script, seconds))
