"""The driver that fits a connection of the user's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from oncekey.messages.driver import another_colour, drivers_of
from oncekey.messages.drivers import Connected, SQLAlchemy, SQLite
from oncekey.messages.drivers_async import AsyncConnected, AsyncSQLAlchemy, AsyncSQLite
from oncekey.messages.drivers_django import Django


@cache
def _psycopg_class() -> Callable[[Any], Connected]:
    from oncekey.messages.drivers_psycopg import Psycopg  # noqa: PLC0415 - where it is installed

    return Psycopg


@cache
def _psycopg_class_async() -> Callable[[Any], AsyncConnected]:
    from oncekey.messages.drivers_psycopg_async import AsyncPsycopg  # noqa: PLC0415 - where it is installed

    return AsyncPsycopg


def _psycopg(connection: Any) -> Connected:  # noqa: ANN401 - the driver is imported by its user
    return _psycopg_class()(connection)


def _psycopg_async(connection: Any) -> AsyncConnected:  # noqa: ANN401 - as above
    return _psycopg_class_async()(connection)


_KINDS: Final[dict[str, Callable[[Any], Connected]]] = {
    "psycopg": _psycopg,
    "sqlalchemy": SQLAlchemy,
    "scoped": lambda scoped: SQLAlchemy(scoped()),
    "django": Django,
    "sqlite3": SQLite,
}
_KINDS_ASYNC: Final[dict[str, Callable[[Any], AsyncConnected]]] = {
    "async psycopg": _psycopg_async,
    "async sqlalchemy": AsyncSQLAlchemy,
    "async scoped": lambda scoped: AsyncSQLAlchemy(scoped()),
    "async sqlite3": AsyncSQLite,
}


def connected(given: Any) -> Connected:  # noqa: ANN401 - a connection of any driver
    """Return what the inbox can do with the connection; refuse one of an unknown driver."""
    kind = drivers_of(given)
    if kind in _KINDS:
        return _KINDS[kind](given)
    raise another_colour(given, kind, "AsyncInbox")


def connected_async(given: Any) -> AsyncConnected:  # noqa: ANN401 - as above
    """Return the same for an `AsyncInbox`."""
    kind = drivers_of(given)
    if kind in _KINDS_ASYNC:
        return _KINDS_ASYNC[kind](given)
    raise another_colour(given, kind, "Inbox")
