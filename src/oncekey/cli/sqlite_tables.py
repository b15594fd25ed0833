"""The tables of the records in a SQLite file, looked at without changing it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from oncekey import ConfigurationError
from oncekey.cli.errors import NoTablesError
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite.browse import HAS_HELD_INDEX, HELD_INDEX, MAKE_HELD_INDEX
from oncekey.stores.sqlite.statements import explain

__all__ = ["HELD_INDEX", "make_index", "must_exist", "schema_of"]

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncekey_records'"
_SCHEMA = "SELECT version FROM oncekey_schema"


def must_exist(store: SQLiteStore, *, typed: bool) -> None:
    """Nothing, unless opening would make the file, or put our tables into the file of another."""
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
    """How many migrations the file has seen; None where there is no such file, or no such table."""
    try:
        with closing(_opened(store)) as file:
            return int(file.execute(_SCHEMA).fetchone()[0])
    except sqlite3.Error:
        return None


def make_index(store: SQLiteStore) -> bool:
    """The index by which held records are found and counted is there; whether it was made now."""
    try:
        with closing(sqlite3.connect(store.file)) as file, file:
            if file.execute(HAS_HELD_INDEX).fetchone() is not None:
                return False
            file.execute(MAKE_HELD_INDEX)
            return True
    except sqlite3.Error as error:
        raise explain(error, store.path) from error


def _has_records(store: SQLiteStore) -> bool:
    """Whether the table is there; True when it takes the store itself to say what is wrong."""
    try:
        with closing(_opened(store)) as file:
            return file.execute(_TABLE).fetchone() is not None
    except sqlite3.Error:
        return True


def _opened(store: SQLiteStore) -> sqlite3.Connection:
    return sqlite3.connect(f"{store.file.as_uri()}?mode=ro", uri=True)
