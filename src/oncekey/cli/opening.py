"""Opening the store that was named, without making one by looking at it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

import typer

from oncekey import ConfigurationError, Once
from oncekey.cli.options import Chosen
from oncekey.stores import MemoryStore, SQLiteStore, open_store

_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'oncekey_records'"


@contextmanager
def records(ctx: typer.Context, typed: str | None) -> Iterator[Once]:
    """The records of the store that was named; it is closed in the end."""
    if typed is not None:
        ctx.obj = Chosen(typed, typed=True)
    store = open_store(ctx.obj.url)
    if isinstance(store, MemoryStore):
        msg = "memory:// lives inside the process that uses it; there is nothing to see from here"
        raise ConfigurationError(msg)
    if isinstance(store, SQLiteStore):
        _must_exist(store, ctx.obj)
    once = Once(store, observers=())
    try:
        yield once
    finally:
        once.close()


def _must_exist(store: SQLiteStore, chosen: Chosen) -> None:
    """Opening the store would create the file, or put our tables into the file of another."""
    path = store.path
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        hint = "" if chosen.typed else "; name one with --store or $ONCEKEY_STORE"
        msg = f"there is no store at {path}{hint}"
        raise ConfigurationError(msg) from None
    except OSError as error:
        msg = f"there is no store at {path}: {error.strerror}"
        raise ConfigurationError(msg) from None
    if not size or not _has_records(store):
        msg = f"{path} holds no records of oncekey, and looking must not change it"
        raise ConfigurationError(msg)


def _has_records(store: SQLiteStore) -> bool:
    """Whether the table is there; True when it takes the store itself to say what is wrong."""
    try:
        with closing(
            sqlite3.connect(f"{store.path.absolute().as_uri()}?mode=ro", uri=True)
        ) as file:
            return file.execute(_TABLE).fetchone() is not None
    except sqlite3.Error:
        return True
