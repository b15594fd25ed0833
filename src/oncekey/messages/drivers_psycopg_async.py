"""Connections of psycopg 3, which send two statements at once where they may."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from psycopg.rows import tuple_row

from oncekey.messages import rows
from oncekey.messages.driver import pyformat
from oncekey.messages.drivers_async import AsyncOneByOne
from oncekey.messages.pipeline import may_prepare, names_on, prepare, prepared, say, together
from oncekey.messages.statements import (
    POSTGRES,
    RELEASE,
    ROLL_BACK,
    ROLL_BACK_LAST,
    SAVEPOINT,
    SAVEPOINT_LAST,
    Values,
    statements,
)

CLAIM_NEW: Final = statements(POSTGRES).claim_new


class AsyncPsycopg(AsyncOneByOne):
    """An AsyncConnection of psycopg 3, which sends two statements at once where it may."""

    dialect = POSTGRES

    def __init__(self, connection: Any) -> None:
        """Nothing is made before it is needed: most messages need no cursor."""
        self._connection = connection

    def inside(self) -> bool:
        """Whether BEGIN was sent, nothing has failed since, and nothing waits in a pipeline."""
        status = self._connection.info.transaction_status.name
        return bool(status == "INTRANS" and not self._connection.pgconn.pipeline_status)

    @cached_property
    def _cursor(self) -> Any:
        """The rows of its cursors are made as the user likes; ours are tuples."""
        return self._connection.cursor(row_factory=tuple_row)

    async def begin(self) -> None:
        """It has, if it is inside."""

    async def savepoint(self) -> None:
        """Set."""
        await self._cursor.execute(SAVEPOINT)

    async def claim_new(self, statement: str, values: Values) -> list[Any]:
        """The savepoint and the claim at once, where the server knows the claim."""
        known = names_on(self._connection)
        if prepared(statement).name not in known or not may_prepare(self._connection):
            await self.savepoint()
            return []
        try:
            found = await self._together((SAVEPOINT, None), (statement, values))
            return [rows.new(token, values) for (token,) in found[1]]
        except InvalidSqlStatementName:  # a rollback of the user's has made it forget
            known.clear()
            await self._say(ROLL_BACK)
            return []

    async def run_last(self, statement: str, values: Values) -> list[Any]:
        """Both at once, where the server knows the statement; otherwise it does from now on.

        A savepoint of their own saves the work before them, should the server have forgotten.
        """
        known, may = names_on(self._connection), may_prepare(self._connection)
        if may and prepared(statement).name in known:
            try:
                both = (SAVEPOINT_LAST, None), (statement, values), (RELEASE, None)
                return (await self._together(*both))[1]
            except InvalidSqlStatementName:
                known.clear()
                await self._say(ROLL_BACK_LAST)
        found = await super().run_last(statement, values)
        if may and found:
            await self._prepare(statement)
            await self._prepare(CLAIM_NEW)
        return found

    async def _together(self, *statements: tuple[str, Values | None]) -> list[list[Any]]:
        connection = self._connection
        asked = together(connection.pgconn, [*statements])
        async with connection.lock:
            answers: list[list[Any]] = await connection.wait(asked)
        return answers

    async def _say(self, script: str) -> None:
        connection = self._connection
        async with connection.lock:
            await connection.wait(say(connection.pgconn, script))

    async def _prepare(self, statement: str) -> None:
        """The server knows the statement. Behind a pooler it may know it already."""
        connection = self._connection
        await self._say(SAVEPOINT)
        try:
            async with connection.lock:
                await connection.wait(prepare(connection.pgconn, prepared(statement)))
        except DuplicatePreparedStatement:
            await self._say(ROLL_BACK)
        await self._say(RELEASE)
        names_on(connection).add(prepared(statement).name)

    async def run(self, statement: str, values: Values) -> list[Any]:
        """The rows."""
        await self._cursor.execute(pyformat(statement), values)
        found: list[Any] = await self._cursor.fetchall() if self._cursor.description else []
        return found

    async def release(self) -> None:
        """Released."""
        await self._cursor.execute(RELEASE)

    async def roll_back(self) -> None:
        """Rolled back, and gone, unless the transaction is gone itself."""
        if self._connection.info.transaction_status.name != "IDLE":
            await self._say(f"{ROLL_BACK}; {RELEASE}")
