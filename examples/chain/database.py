"""The database of a service: PostgreSQL, or a file of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

_FILE = "sqlite:///"


class Database:
    """One connection, opened at its first use. Questions mark values with `?`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._file = url.startswith(_FILE)
        self._connection: Any = None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A connection inside a transaction, which is committed at the end of the block."""
        connection = self._opened()
        if not self._file:
            with connection.transaction():
                yield connection
            return
        connection.execute("BEGIN IMMEDIATE")
        with connection:  # commits, or rolls back
            yield connection

    def run(self, connection: Any, statement: str, *values: object) -> list[Sequence[Any]]:
        """Run a statement on the connection. Return its rows."""
        found = connection.execute(self._written(statement), values)
        return list(found.fetchall()) if found.description else []

    def ask(self, question: str, *values: object) -> list[Sequence[Any]]:
        """Return the rows that answer a question, outside of any transaction."""
        return self.run(self._opened(), question, *values)

    def close(self) -> None:
        """Close the connection. The next use opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> Any:
        if self._connection is None and self._file:
            path = self.url.removeprefix(_FILE)
            connection = sqlite3.connect(
                path, timeout=30, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # survives a process that dies
            self._connection = connection
        elif self._connection is None:
            import psycopg

            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def _written(self, statement: str) -> str:
        return statement if self._file else statement.replace("?", "%s")
