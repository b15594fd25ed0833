"""The connections of one event loop to PostgreSQL: a few, opened when needed and then kept.

Whoever needs a new connection makes it, so that it hears at once what is wrong with the server
and waits for no one's retries. There is no thread and no task in the background that a fork, or
the end of an event loop, could leave behind.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row

from oncekey.fork import generation
from oncekey.stores import postgres_schema as schema
from oncekey.stores.postgres_errors import explain, explain_connect, schema_is_gone
from oncekey.stores.postgres_places import AsyncGate, Target, stale
from oncekey.stores.postgres_sql import Row, Values


class AsyncLink:
    """A way to run statements, from any number of tasks of one loop."""

    def __init__(self, target: Target) -> None:
        """Nothing is opened before the first statement."""
        self._target = target
        self._room = AsyncGate(target.patience, target.size)
        self._migrating = AsyncGate(target.patience)
        self._ready = False
        self._idle: list[AsyncConnection[Any]] = []
        self._closings = 0
        self._born = generation()

    def __del__(self) -> None:
        """Who forgot to close leaves no connection open. A fork's child leaves its parent's."""
        if self._born == generation():
            for connection in self._idle:
                connection.pgconn.finish()

    async def run(self, statement: LiteralString, values: Values) -> list[Row]:
        """The rows of one statement that was prepared, in a transaction of its own."""
        async with self._room:
            closings = self._closings
            connection = await self._take()
            try:
                return await self._send(connection, statement, values)
            finally:
                await self._give_back(connection, closings)

    async def close(self) -> None:
        """The connections are closed, those in use when they come back, but no caller's."""
        self._closings += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def _send(
        self, connection: AsyncConnection[Any], statement: LiteralString, values: Values
    ) -> list[Row]:
        try:
            cursor = connection.cursor(binary=True, row_factory=tuple_row)
            await cursor.execute(statement, values, prepare=True)
            rows = await cursor.fetchall()
            if not connection.autocommit:  # as a caller's pool may have it
                await connection.commit()
        except psycopg.Error as error:
            if schema_is_gone(error):
                self._ready = False
            raise explain(error, self._target.where, lost=connection.closed) from error
        except BaseException:  # cut off: nobody knows what it would answer next
            if self._target.pool is None:
                await connection.close()
            raise
        return rows

    async def _take(self) -> AsyncConnection[Any]:
        """A connection on which nothing was sent yet, to a database that has the schema."""
        connection = await self._connected()
        if self._ready:
            return connection
        try:
            async with self._migrating:
                await self._prepare(connection)
        except BaseException:
            await self._give_back(connection, -1)
            raise
        return connection

    async def _connected(self) -> AsyncConnection[Any]:
        while self._idle:
            connection = self._idle.pop()
            if not stale(connection):
                return connection
            await connection.close()
        target = self._target
        try:
            if target.pool is None:
                return await AsyncConnection.connect(target.conninfo, **target.options)
            callers: AsyncConnection[Any] = await target.pool.getconn()
            while stale(callers):
                await callers.close()
                await target.pool.putconn(callers)
                callers = await target.pool.getconn()
        except psycopg.Error as error:
            raise explain_connect(error, target.where) from error
        return callers

    async def _give_back(self, connection: AsyncConnection[Any], closings: int) -> None:
        if self._target.pool is not None:
            await self._target.pool.putconn(connection)
        elif closings == self._closings and not connection.closed:
            self._idle.append(connection)
        else:
            await connection.close()

    async def _prepare(self, connection: AsyncConnection[Any]) -> None:
        schema.check_server(connection.info.server_version, self._target.where)
        try:
            async with connection.transaction():
                cursor = connection.cursor(row_factory=tuple_row)
                if await self._missing(cursor):
                    await cursor.execute(schema.LOCK)
                    for script in await self._missing(cursor):
                        await cursor.execute(script)
            await connection.commit()
        except psycopg.Error as error:  # the verb itself was not sent yet
            say = explain_connect if connection.closed else explain
            raise say(error, self._target.where) from error
        self._ready = True

    async def _missing(self, cursor: psycopg.AsyncCursor[Any]) -> tuple[bytes, ...]:
        """The migrations that the database has yet to see."""
        await cursor.execute(schema.FIND)
        (found,) = await cursor.fetchall()
        version, oldest = 0, 0
        if found[0]:
            await cursor.execute(schema.READ)
            ((version, oldest),) = await cursor.fetchall()
        return schema.missing(version, oldest, schema.migrations())
