"""The meaning of database errors for the inbox, whichever driver raised them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_LOCKED: Final = "55P03"
_AGAIN: Final = frozenset({"40001", "40P01"})
_NO_TRANSACTION: Final = frozenset({"25P01", "3B001"})
_NO_TABLE: Final = ("42P01", "42883")  # or no function that puts into it

# The same of MySQL and MariaDB.
_LOCKED_MYSQL: Final = 1205
_AGAIN_MYSQL: Final = frozenset({1020, 1213})
"""A row that has changed since the snapshot, and a deadlock."""
_NO_SAVEPOINT: Final = 1305
_NO_TABLE_MYSQL: Final = frozenset({1048, 1146})
"""There is no such table, or it has another identity, so that a column of ours is NULL."""
_NO_HISTORY: Final = frozenset({159, 1412})
"""A table that is younger than the snapshot of the transaction."""
_DRIVERS_MYSQL: Final = ("pymysql", "asyncmy", "MySQLdb", "django")

WHOLE_TRANSACTION: Final = (
    "the database has rolled the whole transaction back, with all that it did before this message; "
    "begin another one and do all of it again"
)
"""What is said beside an error of the database after which nothing of a transaction is left."""


class TransactionOverError(Exception):
    """A driver has found that the transaction of a savepoint is over, or beyond repair."""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and what it wraps. Layers keep the inner error in different attributes."""
    for _ in range(6):
        if error is None:
            return
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _state(error: BaseException) -> str:
    """Return the SQLSTATE of PostgreSQL, or an empty string."""
    for one in _causes(error):
        code = getattr(one, "sqlstate", None) or getattr(one, "pgcode", None)
        if isinstance(code, str):
            return code
    return ""


def _number(error: BaseException) -> int:
    """Return the number of an error of MySQL, or 0."""
    for one in _causes(error):
        first = one.args[0] if one.args else None
        if isinstance(first, int) and type(one).__module__.startswith(_DRIVERS_MYSQL):
            return first
    return 0


def _sqlite(error: BaseException, *words: str) -> bool:
    return any(
        type(one).__module__.startswith("sqlite3") and any(word in str(one) for word in words)
        for one in _causes(error)
    )


def waited_too_long(error: BaseException) -> bool:
    """Return whether a row, or the SQLite file, stayed locked by another transaction."""
    return (
        _state(error) == _LOCKED
        or _number(error) == _LOCKED_MYSQL
        or _sqlite(error, "is locked", "is busy")
    )


def worth_another_try(error: BaseException) -> bool:
    """Return whether the database aborted the transaction in favour of another one."""
    return _state(error) in _AGAIN or _number(error) in _AGAIN_MYSQL or waited_too_long(error)


def outside_transaction(error: BaseException) -> bool:
    """Return whether there was no transaction, or it had lost our savepoint."""
    return (
        isinstance(error, TransactionOverError)
        or _state(error) in _NO_TRANSACTION
        or _number(error) == _NO_SAVEPOINT
        or _sqlite(error, "no such savepoint")
    )


def table_is_missing(error: BaseException) -> bool:
    """Return whether the database, or the search path, has no such table of ours."""
    return (
        _state(error) in _NO_TABLE
        or _number(error) in _NO_TABLE_MYSQL
        or _sqlite(error, "no such table")
    )


def table_is_too_young(error: BaseException) -> bool:
    """Return whether the table was made, or changed, after the transaction had begun to read."""
    return _number(error) in _NO_HISTORY
