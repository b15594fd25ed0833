"""The user's own connection, whichever driver it is of: what the inbox does inside a transaction.

Each class knows one driver: whether its connection is inside a transaction, how a savepoint is
set there and left again, and how a statement is run.
"""

# Generated from drivers_async.py by "make generate": do not edit.

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from oncekey.messages.driver import BEGIN_FOR_WRITING, as_text_clause, dialect_named, refused
from oncekey.messages.statements import (
    POSTGRES,
    RELEASE,
    ROLL_BACK,
    SAVEPOINT,
    SQLITE,
    Dialect,
    Values,
)


class Connected(Protocol):
    """A connection inside a transaction of the user's."""

    dialect: Dialect

    def inside(self) -> bool:
        """Whether a transaction has begun, so that nothing is committed by itself."""
        ...

    def begin(self) -> None:
        """The dialect is known, and the transaction has begun in the database too."""
        ...

    def savepoint(self) -> None:
        """Whatever follows can be undone without the transaction."""
        ...

    def claim_new(self, statement: str, values: Values) -> list[Any]:
        """A savepoint is set. The row, where that could be had at once; otherwise nothing."""
        ...

    def run_last(self, statement: str, values: Values) -> list[Any]:
        """The statement is run, and the savepoint is released after it."""
        ...

    def run(self, statement: str, values: Values) -> list[Any]:
        """The rows that the statement answers."""
        ...

    def release(self) -> None:
        """What was done since the savepoint stands or falls with the transaction."""
        ...

    def roll_back(self) -> None:
        """What was done since the savepoint is undone, and so are the locks it took."""
        ...


class OneByOne(ABC):
    """A driver that sends one statement after the other."""

    @abstractmethod
    def savepoint(self) -> None:
        """As the driver does it."""

    @abstractmethod
    def run(self, statement: str, values: Values) -> list[Any]:
        """As the driver does it."""

    @abstractmethod
    def release(self) -> None:
        """As the driver does it."""

    def claim_new(self, statement: str, values: Values) -> list[Any]:  # noqa: ARG002 - it has no short way
        """A savepoint is set."""
        self.savepoint()
        return []

    def run_last(self, statement: str, values: Values) -> list[Any]:
        """The statement is run, and the savepoint is released after it."""
        rows = self.run(statement, values)
        if rows:
            self.release()
        return rows


class SQLite(OneByOne):
    """A connection of sqlite3."""

    dialect = SQLITE

    def __init__(self, connection: Any) -> None:
        """Its rows may be of another type; ours are read by position."""
        self._connection = connection

    def inside(self) -> bool:
        """Whether BEGIN was sent: a savepoint outside would commit when it is released."""
        return bool(self._connection.in_transaction)

    def begin(self) -> None:
        """It has, if it is inside."""

    def savepoint(self) -> None:
        """Set."""
        self._connection.execute(SAVEPOINT)

    def run(self, statement: str, values: Values) -> list[Any]:
        """The rows."""
        cursor = self._connection.execute(statement, values)
        rows: list[Any] = [tuple(row) for row in cursor.fetchall()]
        return rows

    def release(self) -> None:
        """Released."""
        self._connection.execute(RELEASE)

    def roll_back(self) -> None:
        """Rolled back, and gone."""
        self._connection.execute(ROLL_BACK)
        self._connection.execute(RELEASE)


class SQLAlchemy(OneByOne):
    """A Session or Connection of SQLAlchemy 2; its savepoint keeps objects in step."""

    dialect = POSTGRES

    def __init__(self, given: Any) -> None:
        """A Session asks for its connection when it is needed."""
        self._given = given
        self._nested: Any = None

    def inside(self) -> bool:
        """Whether begin() was called, or a statement has begun one."""
        return bool(self._given.in_transaction())

    def begin(self) -> None:
        """Refused where each statement is committed by itself.

        sqlite3 begins no transaction before a savepoint, so that it is begun here.
        """
        connection = self._core()
        self.dialect = dialect_named(connection.dialect.name)
        raw = connection.connection
        refused(getattr(raw.dbapi_connection, "autocommit", False) is not True, self._given)
        if self.dialect is SQLITE and not raw.driver_connection.in_transaction:
            connection.exec_driver_sql(BEGIN_FOR_WRITING)

    def savepoint(self) -> None:
        """Set."""
        self._nested = self._given.begin_nested()
        self._core()  # a Session sets it when its connection is asked for

    def run(self, statement: str, values: Values) -> list[Any]:
        """The rows."""
        connection = self._core()
        result = connection.execute(as_text_clause(statement), values)
        return [tuple(row) for row in result.fetchall()] if result.returns_rows else []

    def release(self) -> None:
        """Released, with everything flushed before."""
        self._nested.commit()

    def roll_back(self) -> None:
        """Rolled back; objects are as they were."""
        self._nested.rollback()

    def _core(self) -> Any:
        session = hasattr(self._given, "get_bind")
        return self._given.connection() if session else self._given
