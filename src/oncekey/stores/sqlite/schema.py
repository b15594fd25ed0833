"""Open a SQLite file and migrate its tables."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Final, TypeVar

from oncekey.errors import ConfigurationError
from oncekey.stores.sqlite.statements import OLDEST_SQLITE, explain, is_locked

T = TypeVar("T")

_HAS_SCHEMA: Final = "SELECT 1 FROM sqlite_master WHERE name = 'oncekey_schema'"

_PAGES_IN_LOG: Final = 4000
"""16 MiB, four times the default."""
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
"""Seconds between two questions whether the file is still locked."""


def connect(path: Path, *, synchronous: str, busy_timeout: float) -> sqlite3.Connection:
    """Open the file in WAL mode, and migrate its tables to this release.

    Raise ConfigurationError or StoreError if that fails. Nothing was written then.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        msg = f"SQLite {sqlite3.sqlite_version} is too old; oncekey needs 3.35 or newer"
        raise ConfigurationError(msg)
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
        )
        try:
            _prepare(connection, synchronous, busy_timeout)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        explained = explain(error, path)
        explained.happened = False
        raise explained from error
    return connection


def _prepare(connection: sqlite3.Connection, synchronous: str, busy_timeout: float) -> None:
    _use_wal(connection, busy_timeout)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if synchronous == "NORMAL":  # only checkpoints wait for the disk then: make them rarer
        connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_IN_LOG}")
    migrations = _migrations()
    version = _schema(connection)
    if version > len(migrations):
        msg = (
            f"the SQLite file was brought to schema {version} by a newer release, this one knows "
            f"{len(migrations)}; upgrade oncekey here as well"
        )
        raise ConfigurationError(msg)
    if version < len(migrations):
        _migrate(connection, migrations)


def _schema(connection: sqlite3.Connection) -> int:
    """Return the number of applied migrations.

    It has a table of its own, because `user_version` may be used by the owner of the file.
    """
    if not connection.execute(_HAS_SCHEMA).fetchone():
        return 0
    (version,) = connection.execute("SELECT version FROM oncekey_schema").fetchone()
    return int(version)


def _use_wal(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Switch to WAL. This needs exclusive access, for which SQLite itself does not wait."""
    when_unlocked(lambda: connection.execute("PRAGMA journal_mode = WAL"), busy_timeout)


def when_unlocked(run: Callable[[], T], busy_timeout: float) -> T:
    """Return what `run` returns, called again for so many seconds while the file is locked."""
    give_up = None
    pause = _FIRST_PAUSE
    while True:
        try:
            return run()
        except sqlite3.OperationalError as error:
            give_up = give_up or time.monotonic() + busy_timeout
            if not is_locked(error) or time.monotonic() > give_up:
                raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _migrate(connection: sqlite3.Connection, migrations: list[str]) -> None:
    """Apply what is missing. The lock lets one process do it, and others find it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in migrations[_schema(connection) :]:
            for statement in statements_of(script):
                connection.execute(statement)
        connection.execute("UPDATE oncekey_schema SET version = ?", (len(migrations),))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def statements_of(script: str) -> Iterator[str]:
    """Yield single statements, because `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _migrations() -> list[str]:
    folder = resources.files("oncekey.stores.sqlite") / "sql"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text() for name in names]
