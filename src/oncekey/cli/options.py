"""Options that several commands share, and opening the store that they name."""

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, NamedTuple

import typer

from oncekey import ConfigurationError, Once, OncekeyError
from oncekey.cli import sqlite_tables
from oncekey.core.key import stored_key
from oncekey.inspection.listing import list_records
from oncekey.messages.connections.base import connections_of
from oncekey.outbox.outbox import own_connections
from oncekey.outbox.statements import OUTBOX_SCHEMA
from oncekey.stores import MemoryStore, SQLiteStore, Store, open_store
from oncekey.stores.browse import RecordQuery

_OFFERED: Final = 200


def complete_key(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the newest keys that start with `incomplete`; none if the store cannot be read."""
    remember_store(ctx, ctx.find_root().params.get("store"))
    try:
        with opened_records(ctx, ctx.params.get("store")) as once:
            page = list_records(once.store, RecordQuery(limit=_OFFERED))
    except OncekeyError:
        return []
    names = [stored_key(record.scope, record.key) for record in page.records]
    return [name for name in names if name.startswith(incomplete)]


DEFAULT_STORE: Final = "sqlite:///oncekey.db"
STORE_VARIABLES: Final = ("ONCEKEY_STORE", "REDIS_URL")


class ChosenStore(NamedTuple):
    """The URL of the store, and whether it was typed or comes from the settings."""

    url: str
    typed: bool


Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="The key as `ls` prints it: scope/key, or the key alone.",
        show_default=False,
        autocompletion=complete_key,
    ),
]
Scope = Annotated[
    str | None,
    typer.Option(metavar="SCOPE", help="The scope; KEY is then the key as it is. '' for none."),
]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="As `oncekey --store`, for this command."),
]
OutboxUrl = Annotated[
    str | None,
    typer.Option(
        "--outbox", metavar="URL", help="The database with the outbox, if it is not the store's."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: one JSON object per line.")]
Redact = Annotated[
    bool, typer.Option("--redact", help="Hash keys and scopes; leave out what may be personal.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first, as on a terminal.")]


Reason = Annotated[
    str,
    typer.Option(metavar="TEXT", help="Why; it is kept in the audit trail, with your login."),
]


def who() -> str:
    """Return the login of the person at the shell, and the machine, for the audit trail."""
    try:
        login = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        login = f"uid {os.getuid()}"
    return f"{login}@{socket.gethostname()}"


def remember_store(ctx: typer.Context, store: str | None, *, typed: bool = False) -> None:
    """Keep the URL of the store in the context of the command."""
    ctx.obj = ChosenStore(store or DEFAULT_STORE, typed=typed)


def chosen_store(ctx: typer.Context, typed: str | None) -> Store:
    """Return the store that was named, without connecting to it.

    Raise `ConfigurationError` for a memory store, which only its own process can read.
    """
    if typed is not None:
        remember_store(ctx, typed, typed=True)
    store = open_store(ctx.obj.url)
    if isinstance(store, MemoryStore):
        msg = "records in memory:// can be seen only by the process that made them"
        raise ConfigurationError(msg)
    return store


def outbox_of(ctx: typer.Context, typed: str | None) -> str | None:
    """Return the URL of the database that may have an outbox; None if the store can have none.

    Raise `ConfigurationError` if one was typed that can have none.
    """
    if typed is not None:
        own_connections(typed).close()
        return typed
    url: str = ctx.obj.url
    own = connections_of(url, OUTBOX_SCHEMA)
    if own is None:
        return None
    own.close()
    return url


@contextmanager
def opened_records(ctx: typer.Context, typed: str | None) -> Iterator[Once]:
    """Open the store that was named and close it at the end of the block.

    Raise `ConfigurationError` if it does not exist: a command must not create it.
    """
    store = chosen_store(ctx, typed)
    if isinstance(store, SQLiteStore):
        sqlite_tables.must_exist(store, typed=ctx.obj.typed)
    elif is_postgres(store):
        from oncekey.cli import postgres_tables

        postgres_tables.must_exist(ctx.obj.url)
    elif is_mysql(store):
        from oncekey.cli import mysql_tables

        mysql_tables.must_exist(ctx.obj.url)
    once = Once(store, observers=())
    try:
        yield once
    finally:
        once.close()


def is_postgres(store: Store) -> bool:
    """Return whether it is a PostgreSQL store, without importing a driver that may be missing."""
    return type(store).__name__ == "PostgresStore"


def is_mysql(store: Store) -> bool:
    """Return whether it is a MySQL store, without importing a driver that may be missing."""
    return type(store).__name__ == "MySQLStore"
