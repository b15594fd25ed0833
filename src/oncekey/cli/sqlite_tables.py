"""Check for the tables in a SQLite file without changing it, and make its indexes."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from oncekey import ConfigurationError
from oncekey.cli.errors import NoTablesError
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite.browse import DUE_INDEX, HELD_INDEX, MAKE_DUE_INDEX, MAKE_HELD_INDEX
from oncekey.stores.sqlite.statements import explain

__all__ = ["make_indexes", "must_exist", "schema_of"]

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncekey_records'"
_INDEX = "SELECT 1 FROM sqlite_master WHERE type = 'index' AND name = ?"
_SCHEMA = "SELECT version FROM oncekey_schema"


def must_exist(store: SQLiteStore, *, typed: bool) -> None:
    """Raise if the file does not exist or has none of our tables.

    Opening the store would create the file, or put our tables into the file of another program.
    Raise `ConfigurationError` if there is no file, `NoTablesError` if it has no tables.
    """
    path = store.path
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        hint = "" if typed else "; name one with --store or $ONCEKEY_STORE"
        msg = f"there is no store at {path}{hint}"
        raise ConfigurationError(msg) from None
    except OSError as error:
        msg = f"there is no store at {path}: {error.strerror}"
        raise ConfigurationError(msg) from None
    if not size or not _has_records(store):
        msg = (
            f"{path} holds no records of oncekey, and looking must not change it; "
            f"`oncekey migrate` makes the tables"
        )
        raise NoTablesError(msg)


def schema_of(store: SQLiteStore) -> int | None:
    """Return how many migrations the file has seen, or None if there is no file or no table."""
    try:
        with closing(_opened(store)) as file:
            return int(file.execute(_SCHEMA).fetchone()[0])
    except sqlite3.Error:
        return None


def make_indexes(store: SQLiteStore) -> list[str]:
    """Make the indexes that somebody has dropped. Return their names."""
    made: list[str] = []
    try:
        with closing(sqlite3.connect(store.file)) as file, file:
            for name, statement in ((DUE_INDEX, MAKE_DUE_INDEX), (HELD_INDEX, MAKE_HELD_INDEX)):
                if file.execute(_INDEX, (name,)).fetchone() is None:
                    file.execute(statement)
                    made.append(name)
    except sqlite3.Error as error:
        raise explain(error, store.path) from error
    return made


def _has_records(store: SQLiteStore) -> bool:
    """Return whether the table exists. Return True on an error, so that the store reports it."""
    try:
        with closing(_opened(store)) as file:
            return file.execute(_TABLE).fetchone() is not None
    except sqlite3.Error:
        return True


def _opened(store: SQLiteStore) -> sqlite3.Connection:
    return sqlite3.connect(f"{store.file.as_uri()}?mode=ro", uri=True)
