"""The user's own database, with the user's own table: effects, without a unique key."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
import pymysql

from oncekey import NotRecordedError

TABLE = "CREATE TABLE IF NOT EXISTS effects (name TEXT, value TEXT)"
WRITE = "INSERT INTO effects VALUES (%s, %s)"
BUSY = 20.0


class Connection(NamedTuple):
    """A connection inside a transaction, and how the effect is written with it."""

    handle: Any
    write: Callable[[str, str], object]


Transaction = Callable[[], AbstractContextManager[Connection]]


def own_transaction(place: str) -> Transaction:
    """Opens transactions; each thread has its connection, and a new one after trouble."""
    kinds = {"sqlite": _in_sqlite, "postgresql": _in_postgres, "mysql": _in_mariadb}
    return kinds[place.partition(":")[0]](place)


def _in_postgres(place: str) -> Transaction:
    here = threading.local()

    @contextmanager
    def transaction() -> Iterator[Connection]:
        try:
            if getattr(here, "connection", None) is None:
                here.connection = psycopg.connect(place, autocommit=True)
            handle = here.connection
            with handle.transaction():
                yield Connection(handle, lambda key, value: handle.execute(WRITE, (key, value)))
        except psycopg.OperationalError as error:
            here.connection = None
            # The commit may have arrived: nobody knows until somebody asks again.
            raise NotRecordedError(str(error)) from None

    return transaction


def _in_mariadb(place: str) -> Transaction:
    here = threading.local()

    @contextmanager
    def transaction() -> Iterator[Connection]:
        try:
            if getattr(here, "connection", None) is None:
                here.connection = _mariadb(place)
            handle = here.connection
            handle.begin()
            try:
                with handle.cursor() as cursor:
                    yield Connection(handle, lambda key, value: cursor.execute(WRITE, (key, value)))
                handle.commit()
            except BaseException:
                handle.rollback()
                raise
        except (pymysql.OperationalError, pymysql.InterfaceError) as error:
            here.connection = None
            raise NotRecordedError(str(error)) from None

    return transaction


def _in_sqlite(place: str) -> Transaction:
    here = threading.local()

    @contextmanager
    def transaction() -> Iterator[Connection]:
        if getattr(here, "connection", None) is None:
            path = urlsplit(place).path.removeprefix("/")
            here.connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
        handle = here.connection
        handle.execute("BEGIN IMMEDIATE")
        with handle:
            write = WRITE.replace("%s", "?")
            yield Connection(handle, lambda key, value: handle.execute(write, (key, value)))

    return transaction


def _mariadb(place: str) -> Any:
    parts = urlsplit(place)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 0,
        user=parts.username,
        password=parts.password or "",
        database=parts.path.removeprefix("/"),
        autocommit=True,
    )


def prepare(place: str) -> None:
    """The table is there, and empty."""
    _execute(place, TABLE)
    _execute(place, "DELETE FROM effects")


def effects(place: str) -> list[tuple[str, str]]:
    """What is in the table."""
    return [(key, value) for key, value in _execute(place, "SELECT name, value FROM effects")]


def _execute(place: str, statement: str) -> list[Any]:
    if place.startswith("sqlite"):
        path = urlsplit(place).path.removeprefix("/")
        connection = sqlite3.connect(path, timeout=BUSY, isolation_level=None)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()
    if place.startswith("mysql"):
        with closing(_mariadb(place)) as mariadb, mariadb.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    with psycopg.connect(place, autocommit=True) as server:
        cursor = server.execute(statement)
        return cursor.fetchall() if cursor.description else []
