"""The inbox's own connections to a SQLite file. Each statement is its own transaction."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from oncekey.compat import Runner, leave_alone, pause_for_fork
from oncekey.errors import ConfigurationError
from oncekey.messages.schema import INBOX_SCHEMA, Schema
from oncekey.messages.statements import SQLITE, Given
from oncekey.stores.sqlite.schema import create_file, statements_of, when_unlocked
from oncekey.stores.sqlite.statements import OLDEST_SQLITE, explain

T = TypeVar("T")

_AT_ONCE: Final = 0.05
"""Seconds that one try waits inside of SQLite. A file without WAL is committed between reads."""
_PATIENCE: Final = 10.0
"""Seconds that a statement of a caller waits for writers, with all its tries."""
_OF_KEEPER: Final = 0.2
"""Seconds that a statement of the keeper waits for writers: it has other leases to renew."""


class SQLiteConnections:
    """Two connections: one for callers, and one for the keeper, which must not wait for callers."""

    dialect = SQLITE

    def __init__(self, path: Path, mode: int = 0o600, schema: Schema = INBOX_SCHEMA) -> None:
        """Remember the path. The first statement opens the file.

        A file that is created has the permissions `mode`: it holds dead letters.
        """
        self.path = path
        self.schema = schema
        self._mode = mode
        self._reset()
        pause_for_fork(self)

    def _reset(self) -> None:
        self._lines = {
            False: _Connection(self.path, _PATIENCE, self._mode),
            True: _Connection(self.path, _OF_KEEPER, self._mode),
        }
        self.known = ""

    def run(self, statement: str, values: Given, *, keeper: bool = False) -> list[Any]:
        """Run the statement and commit it. Return its rows."""

        def work(connection: sqlite3.Connection) -> list[Any]:
            given = values() if callable(values) else values
            return connection.execute(statement, given).fetchall()

        return self._lines[keeper].run(work)

    def identity(self) -> str:
        """Bring the schema up to date. Return the identity of the file."""
        if not self.known:
            self.known = self._lines[False].run(partial(_prepared, self.schema))
        return self.known

    def found(self) -> str:
        """Return the identity of the file, or an empty string if its schema is not made yet.

        The schema is not made here, since the caller may be the one that has the file locked.
        """
        if not self.known:
            self.known = self._lines[False].run(partial(_found, self.schema))
        return self.known

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        for line in self._lines.values():
            line.close()
        self.known = ""

    def before_fork(self, forker: Runner, seconds: float) -> None:
        """Close the file, and keep it closed until the fork is over; `SQLiteStore` says why."""
        give_up = time.monotonic() + seconds
        for line in self._lines.values():
            line.pause(forker, max(0.0, give_up - time.monotonic()))

    def after_fork_in_parent(self, forker: Runner) -> None:
        """Let others open the file again."""
        for line in self._lines.values():
            line.resume(forker)

    def after_fork(self) -> None:
        """Drop the parent's connections without touching them, not even to close them."""
        leave_alone(self._lines)
        self._reset()


class _Connection:
    def __init__(self, path: Path, patience: float, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._patience = patience
        self._lock = threading.Lock()
        self._forker: Runner | None = None
        self._connection: sqlite3.Connection | None = None

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` returns. It is called again while another writer has the file locked.

        A statement that has waited long inside of SQLite would write the time from before.
        """
        with self._lock:
            try:
                return when_unlocked(partial(work, self._open()), self._patience)
            except sqlite3.Error as error:
                raise explain(error, self._path) from error

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def pause(self, forker: Runner, seconds: float) -> None:
        if self._lock.acquire(timeout=seconds):
            self._forker = forker
            self._close()

    def resume(self, forker: Runner) -> None:
        if self._forker is forker:
            self._forker = None
            self._lock.release()

    def __del__(self) -> None:
        """Close the file. Python 3.13 warns if it is still open."""
        self._close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if sqlite3.sqlite_version_info < OLDEST_SQLITE:
                msg = f"SQLite {sqlite3.sqlite_version} is too old; oncekey needs 3.35 or newer"
                raise ConfigurationError(msg)
            create_file(self._path, self._mode)
            self._connection = sqlite3.connect(
                self._path, timeout=_AT_ONCE, isolation_level=None, check_same_thread=False
            )
        return self._connection


def _prepared(schema: Schema, connection: sqlite3.Connection) -> str:
    if _steps(schema, connection):
        _migrate(schema, connection)
    return str(connection.execute(schema.read).fetchone()[2])


def _found(schema: Schema, connection: sqlite3.Connection) -> str:
    if _steps(schema, connection):
        return ""
    return str(connection.execute(schema.read).fetchone()[2])


def _steps(schema: Schema, connection: sqlite3.Connection) -> tuple[str, ...]:
    found = connection.execute(schema.find(SQLITE)).fetchone()
    read = connection.execute(schema.read).fetchall() if found[0] else []
    return schema.missing(found, read, SQLITE)


def _migrate(schema: Schema, connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in _steps(schema, connection):
            for statement in statements_of(script):
                connection.execute(statement)
        connection.execute(schema.bump(SQLITE))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
