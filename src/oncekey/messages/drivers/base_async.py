"""What the inbox does on the user's own connection, inside a transaction.

Each class knows one driver: whether its connection is inside a transaction, how to set and leave a
savepoint there, and how to run a statement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from oncekey.messages.drivers.detection import (
    BEGIN_FOR_WRITING,
    PREPARING,
    as_text_clause,
    dialect_named,
    inside_mysql,
    refused,
)
from oncekey.messages.statements import (
    MYSQL,
    POSTGRES,
    RELEASE,
    ROLL_BACK,
    SAVEPOINT,
    SQLITE,
    Dialect,
    Values,
)


class AsyncConnected(Protocol):
    """A connection inside a transaction of the user."""

    dialect: Dialect

    def inside(self) -> bool:
        """Return whether a transaction has begun, so that statements are not committed alone."""
        ...

    def without_savepoint(self) -> bool:
        """Return whether the driver knows that the savepoint is gone."""
        ...

    def prepares(self) -> bool:
        """Return whether the server keeps the plans of what is run, after `begin`."""
        ...

    async def begin(self) -> None:
        """Find out the dialect, and begin the transaction in the database if it has not."""
        ...

    async def savepoint(self) -> None:
        """Set a savepoint, so that what follows can be undone without the whole transaction."""
        ...

    async def claim_new(self, statement: str, values: Values) -> list[Any]:
        """Set a savepoint. Return the claimed row if one step was enough, or no rows."""
        ...

    async def run_last(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, and release the savepoint if it returned rows. Return the rows."""
        ...

    async def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        ...

    async def release(self) -> None:
        """Release the savepoint, and leave what was done since to the transaction."""
        ...

    async def roll_back(self) -> None:
        """Undo what was done since the savepoint, and give up the locks taken since."""
        ...


class AsyncOneByOne(ABC):
    """A driver that sends one statement after the other."""

    dialect: Dialect

    @abstractmethod
    async def savepoint(self) -> None:
        """Set a savepoint, as the driver does it."""

    @abstractmethod
    async def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, as the driver does it. Return its rows."""

    @abstractmethod
    async def release(self) -> None:
        """Release the savepoint, as the driver does it."""

    def prepares(self) -> bool:
        """Return False: it is sent as text each time."""
        return False

    def without_savepoint(self) -> bool:
        """Return False: only the server can tell."""
        return False

    async def claim_new(self, statement: str, values: Values) -> list[Any]:  # noqa: ARG002 - it has no short way
        """Set a savepoint. Return no rows."""
        await self.savepoint()
        return []

    async def run_last(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, and release the savepoint if it returned rows. Return the rows.

        On MySQL release it first, which shows whether it is still there: after a commit inside the
        block a statement would lock the row, and the lock would outlast the error.
        """
        if self.dialect is MYSQL:
            await self.release()
            return await self.run(statement, values)
        rows = await self.run(statement, values)
        if rows:
            await self.release()
        return rows


class AsyncSQLite(AsyncOneByOne):
    """A connection of aiosqlite."""

    dialect = SQLITE

    def __init__(self, connection: Any) -> None:
        """Take the connection. Its rows may have any type; they are read by position."""
        self._connection = connection

    def inside(self) -> bool:
        """Return whether BEGIN was sent. Outside, releasing a savepoint would commit."""
        return bool(self._connection.in_transaction)

    async def begin(self) -> None:
        """Do nothing: a connection that is inside has begun."""

    async def savepoint(self) -> None:
        """Set the savepoint."""
        await self._connection.execute(SAVEPOINT)

    async def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        cursor = await self._connection.execute(statement, values)
        rows: list[Any] = [tuple(row) for row in await cursor.fetchall()]
        return rows

    async def release(self) -> None:
        """Release the savepoint."""
        await self._connection.execute(RELEASE)

    async def roll_back(self) -> None:
        """Roll back to the savepoint and release it."""
        await self._connection.execute(ROLL_BACK)
        await self._connection.execute(RELEASE)


class AsyncSQLAlchemy(AsyncOneByOne):
    """An AsyncSession or AsyncConnection of SQLAlchemy 2. Its savepoint keeps objects in step."""

    dialect = POSTGRES

    def __init__(self, given: Any) -> None:
        """Take the connection or session. A session opens its connection when it is needed."""
        self._given = given
        self._begun: Any = None
        self._nested: Any = None
        self._released = False
        self._prepares = False

    def inside(self) -> bool:
        """Return whether begin() was called, or a statement has begun a transaction."""
        return bool(self._given.in_transaction())

    def prepares(self) -> bool:
        """Return whether its driver is one that prepares."""
        return self._prepares

    def without_savepoint(self) -> bool:
        """Return whether the user's commit or rollback has ended the savepoint."""
        return self._nested is not None and not self._given.in_nested_transaction()

    async def begin(self) -> None:
        """Begin the transaction in SQLite too, since sqlite3 begins none before a savepoint.

        Raise ConfigurationError if each statement is committed alone.
        """
        self._begun = connection = await self._core()
        self.dialect = dialect_named(connection.dialect.name)
        self._prepares = connection.dialect.driver in PREPARING
        # async only
        raw = connection.sync_connection.connection  # which asks nobody, as it is there
        if False:  # sync only
            raw = connection.connection
        if self.dialect is MYSQL:
            refused(inside_mysql(raw.driver_connection), self._given)
        refused(getattr(raw.dbapi_connection, "autocommit", False) is not True, self._given)
        if self.dialect is SQLITE and not raw.driver_connection.in_transaction:
            await connection.exec_driver_sql(BEGIN_FOR_WRITING)

    async def savepoint(self) -> None:
        """Set the savepoint."""
        self._begun, self._nested = None, await self._given.begin_nested()
        await self._core()  # a session sends the savepoint when its connection is asked for

    async def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        connection, self._begun = self._begun or await self._core(), None
        found: list[Any] = []
        for step in self.dialect.steps(statement):
            result = await connection.execute(as_text_clause(step), values)
            if not result.returns_rows:
                found = self.dialect.rows(result.rowcount)
            elif found := [tuple(row) for row in result.fetchall()]:
                break
        return found

    async def release(self) -> None:
        """Flush everything and release the savepoint."""
        await self._nested.commit()
        self._released = True

    async def roll_back(self) -> None:
        """Roll back to the savepoint. Objects are as they were then.

        Without the savepoint roll back the transaction, or a part of the block would be kept.
        """
        await (self._given if self._released else self._nested).rollback()

    async def _core(self) -> Any:
        session = hasattr(self._given, "get_bind")
        return await self._given.connection() if session else self._given
