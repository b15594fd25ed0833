"""The meaning of database errors for the inbox, whichever driver raised them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_LOCKED: Final = "55P03"
_AGAIN: Final = frozenset({"40001", "40P01"})
_NO_TRANSACTION: Final = frozenset({"25P01", "3B001"})
_NO_TABLE: Final = "42P01"


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


def _sqlite(error: BaseException, *words: str) -> bool:
    return any(
        type(one).__module__.startswith("sqlite3") and any(word in str(one) for word in words)
        for one in _causes(error)
    )


def waited_too_long(error: BaseException) -> bool:
    """Return whether a row, or the SQLite file, stayed locked by another transaction."""
    return _state(error) == _LOCKED or _sqlite(error, "is locked", "is busy")


def worth_another_try(error: BaseException) -> bool:
    """Return whether the database aborted the transaction in favour of another one."""
    return _state(error) in _AGAIN or waited_too_long(error)


def outside_transaction(error: BaseException) -> bool:
    """Return whether there was no transaction, or it had lost our savepoint."""
    return _state(error) in _NO_TRANSACTION or _sqlite(error, "no such savepoint")


def table_is_missing(error: BaseException) -> bool:
    """Return whether the database, or the search path, has no such table."""
    return _state(error) == _NO_TABLE or _sqlite(error, "no such table")
