"""Detection of a connection's driver, and helpers that all drivers share."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from oncekey.errors import ConfigurationError, StoreError
from oncekey.messages.errors import outside_transaction
from oncekey.messages.schema import Schema
from oncekey.messages.statements import MYSQL, POSTGRES, SQLITE, Dialect

if TYPE_CHECKING:
    from sqlalchemy import TextClause

BEGIN_FOR_WRITING: Final = "BEGIN IMMEDIATE"

PREPARING: Final = ("asyncpg", "psycopg")
"""The drivers of SQLAlchemy that have statements prepared, which are used again."""

_PARAMETER: Final = re.compile(r"(?<![:\w']):(\w+)")

# The package and the name of a class, and our name for its driver.
_CLASSES: Final = {
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "async psycopg",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("pymysql", "Connection"): "pymysql",
    ("asyncmy", "Connection"): "asyncmy",
    ("sqlalchemy", "Session"): "sqlalchemy",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "scoped_session"): "scoped",
    ("sqlalchemy", "AsyncSession"): "async sqlalchemy",
    ("sqlalchemy", "AsyncConnection"): "async sqlalchemy",
    ("sqlalchemy", "async_scoped_session"): "async scoped",
    ("django", "BaseDatabaseWrapper"): "django",
    ("django", "ConnectionProxy"): "django",
    ("sqlite3", "Connection"): "sqlite3",
    ("aiosqlite", "Connection"): "async sqlite3",
}


def driver_of(kinds: tuple[type, ...]) -> str:
    """Return the name of the driver by a connection's classes, or an empty string for others."""
    for one in kinds:
        found = _CLASSES.get((one.__module__.partition(".")[0], one.__name__))
        if found:
            return found
    return ""


def another_colour(given: object, needed: str) -> ConfigurationError:
    """Return the error for a connection that needs the class `needed`, or is of no known driver."""
    name, kind = type(given).__name__, driver_of(type(given).__mro__)
    if kind:
        code = "async" if needed.startswith("Async") else "blocking"
        return ConfigurationError(f"{name} of {kind} is for {code} code; use {needed}")
    msg = (
        f"oncekey knows connections of psycopg 3, asyncpg, PyMySQL, asyncmy, SQLAlchemy 2 "
        f"(Session, Connection and their async forms), Django, sqlite3 and aiosqlite, but not "
        f"{name}; of a pool, pass the connection that it lends"
    )
    return ConfigurationError(msg)


def dialect_named(name: str) -> Dialect:
    """Return the dialect of the database. Raise ConfigurationError if it is another kind."""
    if name in ("postgresql", "postgres"):
        return POSTGRES
    if name == "sqlite":
        return SQLITE
    if name in ("mysql", "mariadb"):
        return MYSQL
    msg = (
        f"messages are kept in PostgreSQL, MySQL, MariaDB or SQLite, but the connection is to "
        f"{name}"
    )
    raise ConfigurationError(msg)


@cache
def pyformat(statement: str) -> str:
    """Return the statement with parameters as psycopg and Django write them."""
    return _PARAMETER.sub(r"%(\1)s", statement)


@cache
def as_text_clause(statement: str) -> TextClause:
    """Return the statement as SQLAlchemy runs it with any driver."""
    from sqlalchemy import text

    return text(statement)


def refused(inside: bool, given: Any) -> None:  # noqa: FBT001 - what the connection says of itself
    """Raise ConfigurationError if the connection is outside a transaction.

    Each statement would be committed alone there.
    """
    if inside:
        return
    msg = (
        f"your work and what is kept with it need one transaction, but the "
        f"{type(given).__name__} is in none; begin one first, with connection.transaction(), "
        f"session.begin(), transaction.atomic() or BEGIN, and not in a pipeline"
    )
    raise ConfigurationError(msg)


_IN_TRANSACTION: Final = 1


def inside_mysql(connection: Any) -> bool:
    """Return whether the connection of a MySQL driver does not commit each statement alone.

    Without autocommit the next statement begins a transaction.
    """
    told = getattr(connection, "server_status", 0)
    return bool(told & _IN_TRANSACTION) or not connection.get_autocommit()


def another_database(given: object, schema: Schema) -> ConfigurationError:
    """Return the error for a connection that does not see the table."""
    msg = (
        f"the {type(given).__name__} does not lead to the table {schema.table} of this "
        f"{schema.owner}, but to another database, schema or file, or the table was dropped; give "
        f"both the same URL and search_path, or start again, which makes the table"
    )
    return ConfigurationError(msg)


def made_too_late(schema: Schema) -> StoreError:
    """Return the error for a transaction of MySQL that is older than the table."""
    msg = (
        f"the table {schema.table} was made or changed after this transaction had begun to read, "
        f"so that MySQL shows it nothing there; nothing was written: begin another transaction, "
        f"and call migrate() when the program starts"
    )
    return StoreError(msg, happened=False)


def refused_by_database(error: Exception, given: object) -> None:
    """Raise ConfigurationError if the database says that there is no transaction.

    The driver may have said that there is one.
    """
    if outside_transaction(error):
        try:
            refused(inside=False, given=given)
        except ConfigurationError as refusal:
            raise refusal from error
