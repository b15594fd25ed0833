"""Which driver a connection is of, and what both colours of connections share."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from oncekey.errors import ConfigurationError
from oncekey.messages.errors import outside_transaction
from oncekey.messages.statements import POSTGRES, SQLITE, Dialect

if TYPE_CHECKING:
    from sqlalchemy import TextClause

BEGIN_FOR_WRITING: Final = "BEGIN IMMEDIATE"

_PARAMETER: Final = re.compile(r"(?<![:\w']):(\w+)")

# The module and the name of a class, and what we call its driver.
_CLASSES: Final = {
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "async psycopg",
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


def drivers_of(given: object) -> str:
    """The driver that the connection is of; empty where none is known."""
    return _driver(type(given).__mro__)


@cache
def _driver(kinds: tuple[type, ...]) -> str:
    for kind in kinds:
        found = _CLASSES.get((kind.__module__.partition(".")[0], kind.__name__))
        if found:
            return found
    return ""


def another_colour(given: object, kind: str, needed: str) -> ConfigurationError:
    """Why the connection cannot be used."""
    name = type(given).__name__
    if kind:
        return ConfigurationError(f"{name} of {kind} is for the other colour; use {needed}")
    msg = (
        f"the inbox knows connections of psycopg 3, SQLAlchemy 2 (Session, Connection and their "
        f"async forms), Django, sqlite3 and aiosqlite, but not {name}"
    )
    return ConfigurationError(msg)


def dialect_named(name: str) -> Dialect:
    """The dialect of the database; refused when there is no table for it."""
    if name in ("postgresql", "postgres"):
        return POSTGRES
    if name == "sqlite":
        return SQLITE
    msg = f"the inbox has its table in PostgreSQL or SQLite, but the connection is to {name}"
    raise ConfigurationError(msg)


@cache
def pyformat(statement: str) -> str:
    """The statement with parameters as psycopg and Django write them."""
    return _PARAMETER.sub(r"%(\1)s", statement)


@cache
def as_text_clause(statement: str) -> TextClause:
    """The statement as SQLAlchemy runs it with any driver."""
    from sqlalchemy import text

    return text(statement)


def refused(inside: bool, given: Any) -> None:  # noqa: FBT001 - what the connection says of itself
    """A connection outside a transaction is refused: each statement would be committed alone."""
    if inside:
        return
    msg = (
        f"the inbox needs a transaction around the claim, the work and its completion, but the "
        f"{type(given).__name__} is in none; begin one first, with connection.transaction(), "
        f"session.begin(), transaction.atomic() or BEGIN, and not in a pipeline"
    )
    raise ConfigurationError(msg)


def another_database(given: object) -> ConfigurationError:
    """The refusal of a connection that does not see the inbox's table."""
    msg = (
        f"the {type(given).__name__} does not lead to the table processed_messages of this inbox, "
        f"but to another database, schema or file; give both the same URL and search_path"
    )
    return ConfigurationError(msg)


def refused_by_database(error: Exception, given: object) -> None:
    """Refused where the database says that there is no transaction, whatever the driver said."""
    if outside_transaction(error):
        try:
            refused(inside=False, given=given)
        except ConfigurationError as refusal:
            raise refusal from error
