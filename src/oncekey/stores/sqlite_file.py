"""The SQLite file: opening it, bringing its tables up to date, and rows as records."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

from oncekey.errors import ConfigurationError, StoreError, UnreadableError
from oncekey.record import FORMAT, Record
from oncekey.verbs import Settle

OLDEST_SQLITE: Final = (3, 35, 0)
COLUMNS: Final = (
    "scope, key, status, fingerprint, token, nonce, attempt, lease_end, result, error, noted, "
    "revision, uncertain, label, reference, created, started, updated, finished, expires, version"
)
_SET: Final = ", ".join(f"{column.strip()} = ?" for column in COLUMNS.split(",")[2:])

UNFIT: Final = (OverflowError, UnicodeError)
"""What is raised, before anything is written, for a value that SQLite has no form for."""

SELECT_ONE: Final = f"SELECT {COLUMNS} FROM oncekey_records WHERE scope = ? AND key = ?"  # noqa: S608 - only constants
SELECT_PAGE: Final = (
    f"SELECT {COLUMNS} FROM oncekey_records "  # noqa: S608 - only constants
    "WHERE (scope, key) > (?, ?) AND (expires = 0 OR expires > ?) "
    "AND (? OR scope = ?) AND (? IS NULL OR status = ?) ORDER BY scope, key LIMIT ?"
)
_NEW: Final = (
    f"(?, ?, 'running', ?, ?, ?, 1, ?, NULL, NULL, x'', 0, 0, ?, ?, ?, ?, ?, 0, ?, {FORMAT})"
)
"""A row as a first claim makes it; `new_row` has what differs."""
MANY: Final = 16
"""How many new rows one statement makes."""
INSERT: Final = f"INSERT OR IGNORE INTO oncekey_records ({COLUMNS}) VALUES {_NEW}"  # noqa: S608 - only constants
INSERT_MANY: Final = INSERT + f", {_NEW}" * (MANY - 1)
UPDATE: Final = f"UPDATE oncekey_records SET {_SET} WHERE scope = ? AND key = ?"  # noqa: S608 - only constants
_STAMP: Final = (
    "token = ? AND nonce = ? AND status = ? AND attempt = ? AND revision = ? AND lease_end = ? "
    "AND updated = ? AND expires = ?"
)
UPDATE_SAME: Final = f"{UPDATE} AND {_STAMP}"
# A record that starts afresh goes to the end: rows are numbered as the records were made.
RESTART: Final = UPDATE.replace(
    "SET ", "SET rowid = (SELECT max(rowid) + 1 FROM oncekey_records), ", 1
)
# What `machine.settle` does for an owner; whoever is none, or has settled already, changes nothing.
SETTLE: Final = (
    "UPDATE oncekey_records SET status = ?, result = ?, error = ?, uncertain = 0, updated = ?, "  # noqa: S608 - only constants
    "finished = ?, expires = ? WHERE scope = ? AND key = ? AND token = ? AND nonce = ? "
    "AND status IN ('running', 'held') AND (expires = 0 OR expires > ?) "
    f"AND version <= {FORMAT}"
)
RESTART_SAME: Final = f"{RESTART} AND {_STAMP}"
DELETE: Final = "DELETE FROM oncekey_records WHERE scope = ? AND key = ?"
_HAS_SCHEMA: Final = "SELECT 1 FROM sqlite_master WHERE name = 'oncekey_schema'"
DELETE_SAME: Final = f"{DELETE} AND {_STAMP}"
ANY_EXPIRED: Final = "SELECT 1 FROM oncekey_records WHERE expires > 0 AND expires <= ? LIMIT 1"
PURGE: Final = (
    "DELETE FROM oncekey_records WHERE rowid IN "
    "(SELECT rowid FROM oncekey_records WHERE expires > 0 AND expires <= ? LIMIT ?)"
)


def to_row(record: Record) -> tuple[object, ...]:
    """The record as the columns of its row."""
    return (
        record.scope or "",
        record.key,
        record.status,
        record.fingerprint,
        record.token,
        record.nonce,
        record.attempt,
        record.lease_end,
        record.result,
        record.error,
        record.noted,
        record.revision,
        record.uncertain,
        record.label,
        record.reference,
        record.created,
        record.started,
        record.updated,
        record.finished,
        record.expires,
        record.version,
    )


def new_row(record: Record) -> tuple[object, ...]:
    """What INSERT needs of a record that was claimed for the first time."""
    return (
        record.scope or "",
        record.key,
        record.fingerprint,
        record.token,
        record.nonce,
        record.lease_end,
        record.label,
        record.reference,
        record.created,
        record.started,
        record.updated,
        record.expires,
    )


def settled(ask: Settle, now: int) -> tuple[object, ...]:
    """What SETTLE needs."""
    return (
        ask.status,
        ask.result,
        ask.error,
        now,
        now,
        now + ask.ttl,
        ask.scope or "",
        ask.key,
        ask.token,
        ask.nonce,
        now,
    )


def stamp(record: Record) -> tuple[object, ...]:
    """What no two states of one record have in common: every verb that changes it changes these."""
    return (
        record.token,
        record.nonce,
        record.status,
        record.attempt,
        record.revision,
        record.lease_end,
        record.updated,
        record.expires,
    )


def from_row(row: Any) -> Record:  # noqa: ANN401 - sqlite3 rows are untyped
    """The record in a row; refused when a newer release wrote it."""
    if row[20] > FORMAT:
        msg = (
            f"the record of {row[1]!r} was written by a newer release (format {row[20]}, this one "
            f"reads up to {FORMAT}); upgrade oncekey here as well"
        )
        raise UnreadableError(msg, key=row[1], scope=row[0] or None)
    return Record(
        scope=row[0] or None,
        key=row[1],
        status=row[2],
        fingerprint=row[3],
        token=row[4],
        nonce=row[5],
        attempt=row[6],
        lease_end=row[7],
        result=row[8],
        error=row[9],
        noted=row[10],
        revision=row[11],
        uncertain=bool(row[12]),
        label=row[13],
        reference=row[14],
        created=row[15],
        started=row[16],
        updated=row[17],
        finished=row[18],
        expires=row[19],
        version=row[20],
    )


def connect(path: Path, *, synchronous: str, busy_timeout: float) -> sqlite3.Connection:
    """A connection in WAL mode, with the tables as this release needs them."""
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
        raise explain(error, path) from error
    return connection


def unfit(error: Exception) -> StoreError:
    """What is said to whoever wants to write what SQLite has no form for."""
    return StoreError(f"SQLite cannot hold what was to be written: {error}", happened=False)


def explain(error: sqlite3.Error, path: Path) -> ConfigurationError | StoreError:
    """What is wrong with the file, in one sentence; whether the verb happened, where it may."""
    text = str(error)
    if isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text):
        msg = f"the SQLite file {path} stayed locked by another process; nothing was changed"
        return StoreError(msg, happened=False)
    if "unable to open" in text or "readonly" in text or "permission" in text:
        folder = path.absolute().parent
        why = "cannot be written" if folder.is_dir() else f"needs its folder {folder} to exist"
        msg = f"the SQLite file {path} {why} ({text}); give a path that this process may write"
        return ConfigurationError(msg)
    if "not a database" in text or "malformed" in text:
        msg = f"the SQLite file {path} is damaged or not a database ({text}); restore or move it"
        return ConfigurationError(msg)
    msg = f"the SQLite file {path} failed: {text}"
    return StoreError(msg, happened=None)


def _prepare(connection: sqlite3.Connection, synchronous: str, busy_timeout: float) -> None:
    _use_wal(connection, busy_timeout)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
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
    """How many migrations the file has seen. `user_version` belongs to whoever owns the file."""
    if not connection.execute(_HAS_SCHEMA).fetchone():
        return 0
    (version,) = connection.execute("SELECT version FROM oncekey_schema").fetchone()
    return int(version)


def _use_wal(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Changing the mode needs the file for itself for a moment, and does not wait for it."""
    give_up = time.monotonic() + busy_timeout
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(connection: sqlite3.Connection, migrations: list[str]) -> None:
    """Several processes may come here at once: the lock lets one do it, the others see it done."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in migrations[_schema(connection) :]:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute("UPDATE oncekey_schema SET version = ?", (len(migrations),))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """One at a time, because `executescript` would commit first."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _migrations() -> list[str]:
    folder = resources.files("oncekey.stores") / "sql" / "sqlite"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(folder / name).read_text() for name in names]
