"""The choice of the driver class for a connection of the user."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from oncekey.messages.drivers.asyncpg import AsyncAsyncpg
from oncekey.messages.drivers.base import Connected, SQLAlchemy, SQLite
from oncekey.messages.drivers.base_async import AsyncConnected, AsyncSQLAlchemy, AsyncSQLite
from oncekey.messages.drivers.detection import another_colour, driver_of
from oncekey.messages.drivers.django import Django
from oncekey.messages.schema import Schema

Driver = Callable[[Any], Connected]
AsyncDriver = Callable[[Any], AsyncConnected]


def _psycopg() -> Driver:
    from oncekey.messages.drivers.psycopg import Psycopg

    return Psycopg


def _psycopg_async() -> AsyncDriver:
    from oncekey.messages.drivers.psycopg_async import AsyncPsycopg

    return AsyncPsycopg


def _pymysql() -> Driver:
    from oncekey.messages.drivers.mysql import PyMySQL

    return PyMySQL


def _asyncmy() -> AsyncDriver:
    from oncekey.messages.drivers.mysql_async import AsyncAsyncmy

    return AsyncAsyncmy


_KINDS: Final[dict[str, Callable[[], Driver]]] = {
    "psycopg": _psycopg,
    "pymysql": _pymysql,
    "sqlalchemy": lambda: SQLAlchemy,
    "scoped": lambda: lambda scoped: SQLAlchemy(scoped()),
    "django": lambda: Django,
    "sqlite3": lambda: SQLite,
}
_KINDS_ASYNC: Final[dict[str, Callable[[], AsyncDriver]]] = {
    "async psycopg": _psycopg_async,
    "asyncpg": lambda: AsyncAsyncpg,
    "asyncmy": _asyncmy,
    "async sqlalchemy": lambda: AsyncSQLAlchemy,
    "async scoped": lambda: lambda scoped: AsyncSQLAlchemy(scoped()),
    "async sqlite3": lambda: AsyncSQLite,
}


@cache
def _driver(kinds: tuple[type, ...]) -> Driver | None:
    found = _KINDS.get(driver_of(kinds))
    return found and found()


@cache
def _driver_async(kinds: tuple[type, ...]) -> AsyncDriver | None:
    found = _KINDS_ASYNC.get(driver_of(kinds))
    return found and found()


def connected(given: Any, schema: Schema) -> Connected:
    """Return the driver for the connection. Raise ConfigurationError for an unknown one."""
    driver = _driver(type(given).__mro__)
    if driver is None:
        raise another_colour(given, f"Async{schema.owner.title()}")
    return driver(given)


def connected_async(given: Any, schema: Schema) -> AsyncConnected:
    """Return the driver for a connection of async code, or raise ConfigurationError."""
    driver = _driver_async(type(given).__mro__)
    if driver is None:
        raise another_colour(given, schema.owner.title())
    return driver(given)
