"""The user's own connection, whichever driver it is of: what the inbox does inside a transaction.

Each class knows one driver: whether its connection is inside a transaction, how a savepoint is
set there and left again, and how a statement is run. Its twin awaits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

from oncekey.messages.driver import (
    BEGIN_FOR_WRITING,
    another_colour,
    as_text_clause,
    dialect_named,
    drivers_of,
    pyformat,
    refused,
)
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

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - as above
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

    def __init__(self, given: Any) -> None:  # noqa: ANN401 - as above
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

    def _core(self) -> Any:  # noqa: ANN401 - a Connection
        session = hasattr(self._given, "get_bind")
        return self._given.connection() if session else self._given


class _UndoneError(Exception):
    """What Django is told so that it rolls back."""


class Django(OneByOne):
    """A connection of Django: `django.db.connection`, or one of `connections`."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - as above
        """The alias tells which one it is."""
        self._connection = connection
        self._atomic: Any = None
        self.dialect = dialect_named(connection.vendor)

    def inside(self) -> bool:
        """Whether it is inside transaction.atomic()."""
        return bool(self._connection.in_atomic_block)

    def begin(self) -> None:
        """It has, if it is inside."""

    def savepoint(self) -> None:
        """Set by Django, which then knows what a failed statement leaves behind."""
        from django.db import transaction  # type: ignore[import-untyped]  # noqa: PLC0415 - Django brings no types

        self._atomic = transaction.atomic(using=self._connection.alias)
        self._atomic.__enter__()

    def run(self, statement: str, values: Values) -> list[Any]:
        """The rows."""
        with self._connection.cursor() as cursor:
            cursor.execute(pyformat(statement), values)
            return list(cursor.fetchall()) if cursor.description else []

    def release(self) -> None:
        """Released."""
        self._atomic.__exit__(None, None, None)

    def roll_back(self) -> None:
        """Rolled back, and gone."""
        self._atomic.__exit__(_UndoneError, _UndoneError(), None)


@cache
def _psycopg_class() -> Callable[[Any], Connected]:
    from oncekey.messages.drivers_psycopg import Psycopg  # noqa: PLC0415 - where it is installed

    return Psycopg


def _psycopg(connection: Any) -> Connected:  # noqa: ANN401 - as above
    return _psycopg_class()(connection)


_KINDS: Final[dict[str, Callable[[Any], Connected]]] = {
    "psycopg": _psycopg,
    "sqlalchemy": SQLAlchemy,
    "scoped": lambda scoped: SQLAlchemy(scoped()),
    "django": Django,
    "sqlite3": SQLite,
}


def connected(given: Any) -> Connected:  # noqa: ANN401 - a connection of any driver
    """What the inbox can do with the connection; refused when it knows no such driver."""
    kind = drivers_of(given)
    if kind in _KINDS:
        return _KINDS[kind](given)
    raise another_colour(given, kind, "AsyncInbox")
