"""The limit on SQLite: the least that code without the library would do, one commit a statement."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_TABLE = "CREATE TABLE done (key TEXT PRIMARY KEY, status TEXT NOT NULL, result BLOB)"
_CLAIM = "INSERT INTO done (key, status) VALUES (?, 'running')"
_SETTLE = "UPDATE done SET status = 'completed', result = ? WHERE key = ?"
_READ = "SELECT status, result FROM done WHERE key = ?"


class RawSqlite:
    """One connection with a table of its own; the statements stay prepared in its cache."""

    def __init__(self, path: Path) -> None:
        """As durable as the store: WAL, and every commit reaches the disk."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(_TABLE)

    def new(self, key: str, result: bytes) -> None:
        """A claim and its completion, each committed on its own."""
        self._connection.execute(_CLAIM, (key,))
        self._connection.execute(_SETTLE, (result, key))

    def read(self, key: str) -> bytes:
        """The result, found by the primary key."""
        _, result = self._connection.execute(_READ, (key,)).fetchone()
        assert isinstance(result, bytes)
        return result

    def close(self) -> None:
        """The file is closed."""
        self._connection.close()
