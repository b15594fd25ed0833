"""What the inbox does on the user's own connection, inside a transaction.

Each class knows one driver: whether its connection is inside a transaction, how to set and leave a
savepoint there, and how to run a statement.
"""

# Generated from base_async.py by "make generate": do not edit.

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


class Connected(Protocol):
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

    def begin(self) -> None:
        """Find out the dialect, and begin the transaction in the database if it has not."""
        ...

    def savepoint(self) -> None:
        """Set a savepoint, so that what follows can be undone without the whole transaction."""
        ...

    def claim_new(self, statement: str, values: Values) -> list[Any]:
        """Set a savepoint. Return the claimed row if one step was enough, or no rows."""
        ...

    def run_last(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, and release the savepoint if it returned rows. Return the rows."""
        ...

    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        ...

    def release(self) -> None:
        """Release the savepoint, and leave what was done since to the transaction."""
        ...

    def roll_back(self) -> None:
        """Undo what was done since the savepoint, and give up the locks taken since."""
        ...


class OneByOne(ABC):
    """A driver that sends one statement after the other."""

    dialect: Dialect

    @abstractmethod
    def savepoint(self) -> None:
        """Set a savepoint, as the driver does it."""

    @abstractmethod
    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, as the driver does it. Return its rows."""

    @abstractmethod
    def release(self) -> None:
        """Release the savepoint, as the driver does it."""

    def prepares(self) -> bool:
        """Return False: it is sent as text each time."""
        return False

    def without_savepoint(self) -> bool:
        """Return False: only the server can tell."""
        return False

    def claim_new(self, statement: str, values: Values) -> list[Any]:  # noqa: ARG002 - it has no short way
        """Set a savepoint. Return no rows."""
        self.savepoint()
        return []

    def run_last(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, and release the savepoint if it returned rows. Return the rows.

        On MySQL release it first, which shows whether it is still there: after a commit inside the
        block a statement would lock the row, and the lock would outlast the error.
        """
        if self.dialect is MYSQL:
            self.release()
            return self.run(statement, values)
        rows = self.run(statement, values)
        if rows:
            self.release()
        return rows


class SQLite(OneByOne):
    """A connection of sqlite3."""

    dialect = SQLITE

    def __init__(self, connection: Any) -> None:
        """Take the connection. Its rows may have any type; they are read by position."""
        self._connection = connection

    def inside(self) -> bool:
        """Return whether BEGIN was sent. Outside, releasing a savepoint would commit."""
        return bool(self._connection.in_transaction)

    def begin(self) -> None:
        """Do nothing: a connection that is inside has begun."""

    def savepoint(self) -> None:
        """Set the savepoint."""
        self._connection.execute(SAVEPOINT)

    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        cursor = self._connection.execute(statement, values)
        rows: list[Any] = [tuple(row) for row in cursor.fetchall()]
        return rows

    def release(self) -> None:
        """Release the savepoint."""
        self._connection.execute(RELEASE)

    def roll_back(self) -> None:
        """Roll back to the savepoint and release it."""
        self._connection.execute(ROLL_BACK)
        self._connection.execute(RELEASE)


class SQLAlchemy(OneByOne):
    """A Session or Connection of SQLAlchemy 2. Its savepoint keeps objects in step."""

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

    def begin(self) -> None:
        """Begin the transaction in SQLite too, since sqlite3 begins none before a savepoint.

        Raise ConfigurationError if each statement is committed alone.
        """
        self._begun = connection = self._core()
        self.dialect = dialect_named(connection.dialect.name)
        self._prepares = connection.dialect.driver in PREPARING
        raw = connection.connection
        if self.dialect is MYSQL:
            refused(inside_mysql(raw.driver_connection), self._given)
        refused(getattr(raw.dbapi_connection, "autocommit", False) is not True, self._given)
        if self.dialect is SQLITE and not raw.driver_connection.in_transaction:
            connection.exec_driver_sql(BEGIN_FOR_WRITING)

    def savepoint(self) -> None:
        """Set the savepoint."""
        self._begun, self._nested = None, self._given.begin_nested()
        self._core()  # a session sends the savepoint when its connection is asked for

    def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        connection, self._begun = self._begun or self._core(), None
        found: list[Any] = []
        for step in self.dialect.steps(statement):
            result = connection.execute(as_text_clause(step), values)
            if not result.returns_rows:
                found = self.dialect.rows(result.rowcount)
            elif found := [tuple(row) for row in result.fetchall()]:
                break
        return found

    def release(self) -> None:
        """Flush everything and release the savepoint."""
        self._nested.commit()
        self._released = True

    def roll_back(self) -> None:
        """Roll back to the savepoint. Objects are as they were then.

        Without the savepoint roll back the transaction, or a part of the block would be kept.
        """
        (self._given if self._released else self._nested).rollback()

    def _core(self) -> Any:
        session = hasattr(self._given, "get_bind")
        return self._given.connection() if session else self._given
