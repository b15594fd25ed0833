"""Opening the store that was named, without making one by looking at it."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from oncekey import ConfigurationError, Once
from oncekey.cli import sqlite_tables
from oncekey.cli.options import DEFAULT_STORE, Chosen
from oncekey.stores import MemoryStore, SQLiteStore, Store, open_store


def remembered(ctx: typer.Context, store: str | None, *, typed: bool = False) -> None:
    """The context knows the store of this run."""
    ctx.obj = Chosen(store or DEFAULT_STORE, typed=typed)


def chosen(ctx: typer.Context, typed: str | None) -> Store:
    """The store that was named; nothing is opened yet."""
    if typed is not None:
        remembered(ctx, typed, typed=True)
    store = open_store(ctx.obj.url)
    if isinstance(store, MemoryStore):
        msg = "memory:// lives inside the process that uses it; there is nothing to see from here"
        raise ConfigurationError(msg)
    return store


@contextmanager
def records(ctx: typer.Context, typed: str | None) -> Iterator[Once]:
    """The records of the store that was named; it is closed in the end."""
    store = chosen(ctx, typed)
    if isinstance(store, SQLiteStore):
        sqlite_tables.must_exist(store, typed=ctx.obj.typed)
    elif is_postgres(store):
        from oncekey.cli import postgres_tables  # noqa: PLC0415 - it needs the driver

        postgres_tables.must_exist(ctx.obj.url)
    once = Once(store, observers=())
    try:
        yield once
    finally:
        once.close()


def is_postgres(store: Store) -> bool:
    """Whether it is in PostgreSQL, told without importing a driver that may not be there."""
    return type(store).__name__ == "PostgresStore"
