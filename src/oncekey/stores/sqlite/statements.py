"""The SQL statements for a SQLite file, and the conversion between rows and records."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec.structs import astuple

from oncekey.core.audit import KEPT
from oncekey.core.record import FORMAT, Record
from oncekey.core.requests import Claim, Request, Settle
from oncekey.errors import StoreAccessError, StoreError, UnreadableError

OLDEST_SQLITE: Final = (3, 35, 0)
COLUMNS: Final = ", ".join(Record.__struct_fields__)
"""In the order of the fields of a record."""
_COUNT: Final = len(Record.__struct_fields__)
_UNCERTAIN: Final = Record.__struct_fields__.index("uncertain")
_SET: Final = ", ".join(f"{column.strip()} = ?" for column in COLUMNS.split(",")[2:])
# Keep `due`, so that no index changes, unless the record would expire before it.
_DUE: Final = "due = CASE WHEN due BETWEEN 1 AND ? THEN due ELSE ? END"

UNFIT: Final = (OverflowError, UnicodeError)
"""Raised, before anything is written, for a value that SQLite cannot represent."""

SELECT_ONE: Final = f"SELECT {COLUMNS} FROM oncekey_records WHERE scope = ? AND key = ?"  # noqa: S608 - only constants
SELECT_PAGE: Final = (
    f"SELECT {COLUMNS} FROM oncekey_records "  # noqa: S608 - only constants
    "WHERE (scope, key) > (?, ?) AND (expires = 0 OR expires > ?) "
    "AND (? OR scope = ?) AND (? IS NULL OR status = ?) ORDER BY scope, key LIMIT ?"
)
UPDATE: Final = f"UPDATE oncekey_records SET {_SET}, {_DUE} WHERE scope = ? AND key = ?"  # noqa: S608 - only constants
_STAMP: Final = (
    "token = ? AND nonce = ? AND status = ? AND attempt = ? AND revision = ? AND lease_end = ? "
    "AND updated = ? AND expires = ?"
)
UPDATE_SAME: Final = f"{UPDATE} AND {_STAMP}"
# A record that starts again moves to the end: rowids have the order of creation.
RESTART: Final = UPDATE.replace(
    "SET ", "SET rowid = (SELECT max(rowid) + 1 FROM oncekey_records), ", 1
)
# The same as `machine.settle` for the owner of a record that is not settled; others change nothing.
# It does not set `due`, so that no index is updated.
SETTLE: Final = (
    "UPDATE oncekey_records SET status = ?, result = nullif(?, 0), error = nullif(?, 0), "  # noqa: S608 - only constants
    "uncertain = 0, updated = ?, finished = ?, expires = ? "
    "WHERE scope = ? AND key = ? AND token = ? AND nonce = ? "
    "AND status IN ('running', 'held') AND (expires = 0 OR expires > ?) AND due BETWEEN 1 AND ? "
    f"AND version <= {FORMAT}"
)
RESTART_SAME: Final = f"{RESTART} AND {_STAMP}"
DELETE: Final = "DELETE FROM oncekey_records WHERE scope = ? AND key = ?"
DELETE_SAME: Final = f"{DELETE} AND {_STAMP}"
EXPIRED: Final = "due > 0 AND due <= ? AND expires > 0 AND expires <= ?"
"""The first half uses the index; the second one is decisive. Pass the same time for both."""
ANY_EXPIRED: Final = f"SELECT 1 FROM oncekey_records WHERE {EXPIRED} LIMIT 1"  # noqa: S608 - only constants
PURGE: Final = (
    "DELETE FROM oncekey_records WHERE rowid IN "  # noqa: S608 - only constants
    f"(SELECT rowid FROM oncekey_records WHERE {EXPIRED} LIMIT ?)"
)

RESTORE: Final = (
    f"INSERT OR REPLACE INTO oncekey_records ({COLUMNS}, due) "  # noqa: S608 - only constants
    f"VALUES ({', '.join('?' * (COLUMNS.count(',') + 2))})"
)
AUDIT: Final = "INSERT INTO oncekey_audit (at, entry) VALUES (?, ?)"
TRIM_AUDIT: Final = (
    f"DELETE FROM oncekey_audit WHERE id <= (SELECT max(id) FROM oncekey_audit) - {KEPT}"  # noqa: S608 - only constants
)
AUDITED: Final = "SELECT at, entry FROM oncekey_audit ORDER BY id DESC LIMIT ?"
_SUM: Final = "{0} = excluded.{0} + CASE WHEN at = excluded.at THEN {0} ELSE 0 END"
ADD_ACTIVITY: Final = (
    "INSERT INTO oncekey_activity (place, width, at, new, duplicates, held, errors) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (place) DO UPDATE SET "
    + ", ".join(map(_SUM.format, ("new", "duplicates", "held", "errors")))
    + ", at = excluded.at WHERE at <= excluded.at"
)
ACTIVITY: Final = "SELECT width, at, new, duplicates, held, errors FROM oncekey_activity"

# Statements about several records. The parameters have no numbers, though some have the same value:
# the first releases of Python 3.12 warn about numbered ones each time.


@cache
def select_many(number: int) -> str:
    """Return the statement that selects the records at `number` places."""
    columns = COLUMNS.replace(", ", ", t.")
    marks = ", ".join(["(?, ?)"] * number)
    return (
        f"SELECT t.{columns} FROM (VALUES {marks}) AS a "  # noqa: S608 - only constants
        "CROSS JOIN oncekey_records AS t ON t.scope = a.column1 AND t.key = a.column2"
    )


@cache
def insert_many(number: int) -> str:
    """Return the INSERT for `number` first claims, which skips existing rows; see `new_row`."""
    row = (
        "(?, ?, 'running', ?, ?, ?, 1, ?, ?, ?, ?, ?, 0, NULL, NULL, x'', 0, 0, ?, ?, "
        f"{FORMAT}, x'', ?)"
    )
    rows = ", ".join([row] * number)
    return f"INSERT OR IGNORE INTO oncekey_records ({COLUMNS}, due) VALUES {rows}"  # noqa: S608 - only constants


@cache
def settle_many(number: int) -> str:
    """Return the statement that does for `number` records what SETTLE does; see `settled_many`."""
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * number)
    return (
        "UPDATE oncekey_records AS t SET status = a.column1, result = nullif(a.column2, 0), "  # noqa: S608 - only constants
        "error = nullif(a.column3, 0), uncertain = 0, updated = ?, finished = ?, "
        f"expires = a.column4 FROM (VALUES {rows}) AS a "
        "WHERE t.scope = a.column5 AND t.key = a.column6 "
        "AND t.token = a.column7 AND t.nonce = a.column8 AND t.status IN ('running', 'held') "
        "AND (t.expires = 0 OR t.expires > ?) AND t.due BETWEEN 1 AND a.column4 "
        f"AND t.version <= {FORMAT}"
    )


INSERT: Final = insert_many(1)
_NOBODY: Final = (0,) * 8


def to_row(record: Record) -> tuple[object, ...]:
    """Return the columns of the record."""
    return (record.scope or "", *astuple(record)[1:])


def new_row(record: Record | None, ask: Any) -> tuple[object, ...]:
    """Return the values for INSERT of a record that was claimed for the first time."""
    assert record is not None  # noqa: S101 - a claim creates a record, and no other request does
    created = record.created
    return (
        record.scope or "",
        record.key,
        record.fingerprint,
        record.token,
        record.nonce,
        created,
        record.started,
        record.updated,
        record.lease_end,
        record.expires,
        record.label,
        record.reference,
        created + ask.ttl,
    )


def changed(record: Record, ask: Request) -> tuple[object, ...]:
    """Return the values for UPDATE of a changed record, without scope and key.

    After a grant the owner may settle at once, and then the record expires `ttl` after that: so
    this is the earliest time at which it can be due.
    """
    if isinstance(ask, Claim) and record.expires:
        return (*to_row(record)[2:], 0, record.started + ask.ttl)
    return (*to_row(record)[2:], record.expires, record.expires)


def settled(ask: Settle, now: int) -> tuple[object, ...]:
    """Return the values for SETTLE."""
    status, result, error, expires, *owner = _settled(ask, now)
    return status, result, error, now, now, expires, *owner, now, expires


def settled_many(asks: list[Settle], now: int, size: int) -> list[object]:
    """Return the values for `settle_many`, padded with rows that match no record."""
    values: list[object] = [now, now]
    for ask in asks:
        values += _settled(ask, now)
    values += _NOBODY * (size - len(asks))
    values.append(now)
    return values


def _settled(ask: Settle, now: int) -> tuple[object, ...]:
    """Return the values that differ between settles at the same time.

    Before it binds bytes or None, the sqlite3 module looks for an adapter and finds none, which
    takes longer than binding them. So 0 stands for None, and bytes are passed as a bytearray.
    """
    result = 0 if ask.result is None else bytearray(ask.result)
    error = 0 if ask.error is None else bytearray(ask.error)
    scope = ask.scope or ""
    return ask.status, result, error, now + ask.ttl, scope, ask.key, ask.token, ask.nonce


def stamp(record: Record) -> tuple[object, ...]:
    """Return values that differ between any two states of a record: every change changes them."""
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


def from_row(row: Any) -> Record:
    """Return the record of a row. Raise UnreadableError if a newer release wrote it."""
    if row[20] > FORMAT:
        msg = (
            f"the record of {row[1]!r} was written by a newer release (format {row[20]}, this one "
            f"reads up to {FORMAT}); upgrade oncekey here as well"
        )
        raise UnreadableError(msg, key=row[1], scope=row[0] or None)
    before, after = row[1:_UNCERTAIN], row[_UNCERTAIN + 1 : _COUNT]
    return Record(row[0] or None, *before, row[_UNCERTAIN] == 1, *after)  # type: ignore[call-arg]  # one for each field


def unfit(error: Exception) -> StoreError:
    """Return the error for a value that SQLite cannot represent."""
    return StoreError(f"SQLite cannot hold what was to be written: {error}", happened=False)


def is_locked(error: sqlite3.Error) -> bool:
    """Return whether the statement did nothing because another process has the file locked."""
    text = str(error)
    return isinstance(error, sqlite3.OperationalError) and ("locked" in text or "busy" in text)


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Return the error for the caller: what is wrong, and whether the verb happened."""
    text = str(error)
    if is_locked(error):
        msg = f"the SQLite file {path} stayed locked by another process; nothing was changed"
        return StoreError(msg, happened=False)
    if "unable to open" in text or "readonly" in text or "permission" in text:
        folder = path.absolute().parent
        why = "cannot be written" if folder.is_dir() else f"needs its folder {folder} to exist"
        msg = f"the SQLite file {path} {why} ({text}); give a path that this process may write"
        return StoreAccessError(msg, happened=False)
    if "not a database" in text or "malformed" in text:
        msg = f"the SQLite file {path} is damaged or not a database ({text}); restore or move it"
        return StoreAccessError(msg, happened=None)
    msg = f"the SQLite file {path} failed: {text}"
    return StoreError(msg, happened=None)
