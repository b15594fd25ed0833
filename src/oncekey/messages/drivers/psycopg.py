"""The driver for psycopg 3, which sends two statements at once where possible."""

# Generated from psycopg_async.py by "make generate": do not edit.

from __future__ import annotations

from typing import Any, Final

from psycopg.errors import DuplicatePreparedStatement, InvalidSqlStatementName
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from oncekey.messages import rows
from oncekey.messages.drivers.base import OneByOne
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


class Psycopg(OneByOne):
    """A connection of psycopg 3, which sends two statements at once where possible."""

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

    def begin(self) -> None:
        """Do nothing: a connection that is inside has begun."""

    def savepoint(self) -> None:
        """Set the savepoint."""
        self._cursor.execute(SAVEPOINT)

    def claim_new(self, statement: str, values: Values) -> list[Any]:
        """Send the savepoint and the claim at once, if the server has the claim prepared."""
        known = names_on(self._connection)
        if prepared(statement).name not in known or not may_prepare(self._connection):
            self.savepoint()
            return []
        try:
            found = self._together((SAVEPOINT, None), (statement, values))
            return [rows.new(token, values) for (token,) in found[1]]
        except InvalidSqlStatementName:  # a rollback of the user has dropped the prepared statement
            known.clear()
            self._say(ROLL_BACK)
            return []

    def run_last(self, statement: str, values: Values) -> list[Any]:
        """Send the statement and the release at once, if the server has the statement prepared.

        Otherwise send them one by one and prepare the statement. A second savepoint protects the
        work before, should the server have dropped the prepared statement.
        """
        known, may = names_on(self._connection), may_prepare(self._connection)
        if may and prepared(statement).name in known:
            try:
                both = (SAVEPOINT_LAST, None), (statement, values), (RELEASE, None)
                return self._together(*both)[1]
            except InvalidSqlStatementName:
                known.clear()
                self._say(ROLL_BACK_LAST)
        found = super().run_last(statement, values)
        if may and found:
            self._prepare(statement)
            self._prepare(CLAIM_NEW)
        return found

    def _together(self, *statements: tuple[str, Values | None]) -> list[list[Any]]:
        connection = self._connection
        asked = together(connection.pgconn, [*statements])
        with connection.lock:
            answers: list[list[Any]] = connection.wait(asked)
        return answers

    def _say(self, script: str) -> None:
        connection = self._connection
        with connection.lock:
            connection.wait(say(connection.pgconn, script))

    def _prepare(self, statement: str) -> None:
        """Prepare the statement. Behind a pooler the server may have it already."""
        connection = self._connection
        self._say(SAVEPOINT)
        try:
            with connection.lock:
                connection.wait(prepare(connection.pgconn, prepared(statement)))
        except DuplicatePreparedStatement:
            self._say(ROLL_BACK)
        self._say(RELEASE)
        names_on(connection).add(prepared(statement).name)

    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        cursor = self._cursor
        cursor.execute(pyformat(statement), values)
        if not cursor.pgresult.nfields:
            return self.dialect.rows(cursor.rowcount)
        found: list[Any] = cursor.fetchall()
        return found

    def release(self) -> None:
        """Release the savepoint."""
        self._cursor.execute(RELEASE)

    def roll_back(self) -> None:
        """Roll back to the savepoint and release it, unless the transaction itself is over."""
        if self._connection.pgconn.transaction_status != TransactionStatus.IDLE:
            self._say(f"{ROLL_BACK}; {RELEASE}")
