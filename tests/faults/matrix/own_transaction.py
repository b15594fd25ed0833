"""The user's own database, with the user's own table: effects, without a unique key."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg

from oncekey import NotRecordedError

TABLE = "CREATE TABLE IF NOT EXISTS effects (key TEXT, value TEXT)"
BUSY = 20.0


class Connection(NamedTuple):
    """A connection inside a transaction, and how the effect is written with it."""

    handle: Any
    write: Callable[[str, str], object]


def own_transaction(place: str) -> Callable[[], AbstractContextManager[Connection]]:
    """Opens transactions; each thread has its connection, and a new one after trouble."""
    here = threading.local()
    sqlite = place.startswith("sqlite")
    sql = f"INSERT INTO effects VALUES ({'?, ?' if sqlite else '%s, %s'})"  # noqa: S608 - no value in it

    @contextmanager
    def postgres() -> Iterator[Connection]:
        try:
            if getattr(here, "connection", None) is None:
                here.connection = psycopg.connect(place, autocommit=True)
            handle = here.connection
            with handle.transaction():
                yield Connection(handle, lambda key, value: handle.execute(sql, (key, value)))
        except psycopg.OperationalError as error:
            here.connection = None
            # The commit may have arrived: nobody knows until somebody asks again.
            raise NotRecordedError(str(error)) from None

    @contextmanager
    def sqlite3_file() -> Iterator[Connection]:
        if getattr(here, "connection", None) is None:
            path = urlsplit(place).path.removeprefix("/")
            here.connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
        handle = here.connection
        handle.execute("BEGIN IMMEDIATE")
        with handle:
            yield Connection(handle, lambda key, value: handle.execute(sql, (key, value)))

    return sqlite3_file if sqlite else postgres


def prepare(place: str) -> None:
    """The table is there, and empty."""
    _execute(place, TABLE)
    _execute(place, "DELETE FROM effects")


def effects(place: str) -> list[tuple[str, str]]:
    """What is in the table."""
    return [(key, value) for key, value in _execute(place, "SELECT key, value FROM effects")]


def _execute(place: str, statement: str) -> list[Any]:
    if place.startswith("sqlite"):
        path = urlsplit(place).path.removeprefix("/")
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()
    with psycopg.connect(place, autocommit=True) as server:
        cursor = server.execute(statement)
        return cursor.fetchall() if cursor.description else []
