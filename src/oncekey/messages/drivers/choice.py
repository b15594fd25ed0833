"""The choice of the driver class for a connection of the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from oncekey.messages.drivers.asyncpg import AsyncAsyncpg
from oncekey.messages.drivers.base import Connected, SQLAlchemy, SQLite
from oncekey.messages.drivers.base_async import AsyncConnected, AsyncSQLAlchemy, AsyncSQLite
from oncekey.messages.drivers.detection import another_colour, drivers_of
from oncekey.messages.drivers.django import Django
from oncekey.messages.schema import Schema


@cache
def _psycopg_class() -> Callable[[Any], Connected]:
    from oncekey.messages.drivers.psycopg import Psycopg

    return Psycopg


@cache
def _psycopg_class_async() -> Callable[[Any], AsyncConnected]:
    from oncekey.messages.drivers.psycopg_async import AsyncPsycopg

    return AsyncPsycopg


def _psycopg(connection: Any) -> Connected:
    return _psycopg_class()(connection)


def _psycopg_async(connection: Any) -> AsyncConnected:
    return _psycopg_class_async()(connection)


def _pymysql(connection: Any) -> Connected:
    from oncekey.messages.drivers.mysql import PyMySQL

    return PyMySQL(connection)


def _asyncmy(connection: Any) -> AsyncConnected:
    from oncekey.messages.drivers.mysql_async import AsyncAsyncmy

    return AsyncAsyncmy(connection)


_KINDS: Final[dict[str, Callable[[Any], Connected]]] = {
    "psycopg": _psycopg,
    "pymysql": _pymysql,
    "sqlalchemy": SQLAlchemy,
    "scoped": lambda scoped: SQLAlchemy(scoped()),
    "django": Django,
    "sqlite3": SQLite,
}
_KINDS_ASYNC: Final[dict[str, Callable[[Any], AsyncConnected]]] = {
    "async psycopg": _psycopg_async,
    "asyncpg": AsyncAsyncpg,
    "asyncmy": _asyncmy,
    "async sqlalchemy": AsyncSQLAlchemy,
    "async scoped": lambda scoped: AsyncSQLAlchemy(scoped()),
    "async sqlite3": AsyncSQLite,
}


def connected(given: Any, schema: Schema) -> Connected:
    """Return the driver for the connection. Raise ConfigurationError for an unknown one."""
    kind = drivers_of(given)
    if kind in _KINDS:
        return _KINDS[kind](given)
    raise another_colour(given, kind, f"Async{schema.owner.title()}")


def connected_async(given: Any, schema: Schema) -> AsyncConnected:
    """Return the driver for a connection of async code, or raise ConfigurationError."""
    kind = drivers_of(given)
    if kind in _KINDS_ASYNC:
        return _KINDS_ASYNC[kind](given)
    raise another_colour(given, kind, schema.owner.title())
