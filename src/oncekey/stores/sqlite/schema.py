"""Open a SQLite file and migrate its tables."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from oncekey.errors import ConfigurationError
from oncekey.observe.logger import logger
from oncekey.stores.sqlite.statements import OLDEST_SQLITE, explain, is_locked

T = TypeVar("T")

_HAS_SCHEMA: Final = "SELECT 1 FROM sqlite_master WHERE name = 'oncekey_schema'"

_PAGES_IN_LOG: Final = 4000
"""16 MiB, four times the default."""
_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.05
"""Seconds between two questions whether the file is still locked."""
_LOOK_EVERY: Final = 1.0
"""Seconds between two questions whether the file is still at its path."""


class Connection(sqlite3.Connection):
    """A connection that knows when its file was moved, removed or replaced.

    SQLite goes on with the old file then, even if it has no name any more, while another process
    opens the one that is at the path now. The same key would run in both.
    """

    _path: Path | None = None
    _identity: tuple[int, int] | None = None

    looks_at = 0.0
    """When to look at the path again."""

    def watch(self, path: Path) -> None:
        """Remember which file is open."""
        self._path, self._identity = path, _identity_of(path)
        self.looks_at = time.monotonic() + _LOOK_EVERY

    def has_moved(self) -> bool:
        """Return whether another file, or none, is at the path. Look about once a second."""
        now = time.monotonic()
        if now < self.looks_at or self._path is None:
            return False
        self.looks_at = now + _LOOK_EVERY
        if _identity_of(self._path) == self._identity:
            return False
        logger.error(
            "%s was moved, removed or replaced while it was in use: the records in it are no longer"
            " seen, and what is at this path now is used instead",
            self._path,
        )
        return True


def _identity_of(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def create_file(path: Path, mode: int) -> None:
    """Create the file with these permissions if there is none. SQLite gives them to its log."""
    try:
        made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
    except OSError:
        return  # it is there, or SQLite says why it cannot be
    try:
        os.fchmod(made, mode)
    finally:
        os.close(made)


def connect(path: Path, *, synchronous: str, busy_timeout: float, mode: int) -> Connection:
    """Open the file in WAL mode, and migrate its tables to this release.

    A new file gets the permissions `mode`. Raise ConfigurationError or StoreError if that fails.
    Nothing was written then.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        msg = f"SQLite {sqlite3.sqlite_version} is too old; oncekey needs 3.35 or newer"
        raise ConfigurationError(msg)
    create_file(path, mode)
    try:
        connection = sqlite3.connect(
            path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        try:
            when_unlocked(lambda: _prepare(connection, synchronous), busy_timeout)
            connection.execute(f"PRAGMA busy_timeout = {round(busy_timeout * 1000)}")
            connection.watch(path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        explained = explain(error, path)
        explained.happened = False
        raise explained from error
    return connection


def _prepare(connection: sqlite3.Connection, synchronous: str) -> None:
    """Switch to WAL and apply what is missing. Raise at once if the file is locked.

    Then it is called again, and looks at the schema again: another process may have brought it up
    to date, and write so much that this one would never get the lock.
    """
    connection.execute("PRAGMA journal_mode = WAL")
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
    from importlib import resources  # nothing else needs it, and it takes long

    folder = resources.files("oncekey.stores.sqlite") / "sql"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text() for name in names]
