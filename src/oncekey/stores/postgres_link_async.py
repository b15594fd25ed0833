"""How one event loop asks PostgreSQL: on a connection that is lent, in a schema that is there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from oncekey.stores import postgres_schema as schema
from oncekey.stores.postgres_ask import ask_async
from oncekey.stores.postgres_errors import explain, explain_connect, schema_is_gone
from oncekey.stores.postgres_lenders_async import lender
from oncekey.stores.postgres_places import AsyncGate
from oncekey.stores.postgres_target import Target
from oncekey.stores.postgres_wire import Line, Statement, Values, say

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
