"""The driver for psycopg 3, which sends two statements at once where possible."""

from __future__ import annotations

from typing import Any, Final

from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from oncekey.messages import rows
from oncekey.messages.drivers.base_async import AsyncOneByOne
from oncekey.messages.drivers.detection import pyformat
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
_INSIDE: Final = TransactionStatus.INTRANS


class AsyncPsycopg(AsyncOneByOne):
    """An AsyncConnection of psycopg 3, which sends two statements at once where possible."""

    dialect = POSTGRES

    def __init__(self, connection: Any) -> None:
        """Take the connection. Make no cursor yet, since most messages need none."""
        self._connection = connection
        self._made: Any = None

    def inside(self) -> bool:
        """Return whether BEGIN was sent, nothing has failed since, and no pipeline is open."""
        pgconn = self._connection.pgconn
        return bool(pgconn.transaction_status == _INSIDE and not pgconn.pipeline_status)

    def prepares(self) -> bool:
        """Return whether the user lets psycopg do so."""
        return may_prepare(self._connection)

    @property
    def _cursor(self) -> Any:
        """A cursor for rows as tuples, whatever row factory the user's cursors have."""
        if self._made is None:
            self._made = self._connection.cursor(row_factory=tuple_row)
        return self._made

    async def begin(self) -> None:
        """Do nothing: a connection that is inside has begun."""

    async def savepoint(self) -> None:
        """Set the savepoint."""
        await self._cursor.execute(SAVEPOINT)

    async def claim_new(self, statement: str, values: Values) -> list[Any]:
        """Send the savepoint and the claim at once, if the server has the claim prepared."""
        known = names_on(self._connection)
        if prepared(statement).name not in known or not may_prepare(self._connection):
            await self.savepoint()
            return []
        try:
            found = await self._together((SAVEPOINT, None), (statement, values))
            return [rows.new(token, values) for (token,) in found[1]]
        except InvalidSqlStatementName:  # a rollback of the user has dropped the prepared statement
            known.clear()
            await self._say(ROLL_BACK)
            return []

    async def run_last(self, statement: str, values: Values) -> list[Any]:
        """Send the statement and the release at once, if the server has the statement prepared.

        Otherwise send them one by one and prepare the statement. A second savepoint protects the
        work before, should the server have dropped the prepared statement.
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
        """Prepare the statement. Behind a pooler the server may have it already."""
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
        """Run the statement. Return its rows."""
        cursor = self._cursor
        await cursor.execute(pyformat(statement), values)
        if not cursor.pgresult.nfields:
            return self.dialect.rows(cursor.rowcount)
        found: list[Any] = await cursor.fetchall()
        return found

    async def release(self) -> None:
        """Release the savepoint."""
        await self._cursor.execute(RELEASE)

    async def roll_back(self) -> None:
        """Roll back to the savepoint and release it, unless the transaction itself is over."""
        if self._connection.pgconn.transaction_status != TransactionStatus.IDLE:
            await self._say(f"{ROLL_BACK}; {RELEASE}")
