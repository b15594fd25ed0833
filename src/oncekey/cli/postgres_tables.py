"""Check for the tables in a PostgreSQL database, and make or migrate them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import psycopg

from oncekey.cli.errors import NoTablesError
from oncekey.stores import PostgresStore
from oncekey.stores.postgres import schema
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.browse import INDEXES
from oncekey.stores.postgres.errors import explain

_MAKE: Final = {
    "oncekey_records_due": "ON oncekey_records (due) WHERE due > 0",
    INDEXES[0]: "ON oncekey_records (created)",
    INDEXES[1]: "ON oncekey_records (created) WHERE due = 0",
}
_VALID: Final = (
    "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s) "
    "AND indrelid = to_regclass('oncekey_records')"
)


def must_exist(url: str) -> None:
    """Raise `NoTablesError` if the database can be reached and has none of our tables."""
    try:
        with _connected(url) as connection:
            there = _version(connection) is not None
    except psycopg.Error:
        return  # let the store report what is wrong
    if not there:
        msg = (
            "the database holds no records of oncekey, and looking must not change it; "
            "`oncekey migrate` makes the tables"
        )
        raise NoTablesError(msg)


def migrated(url: str) -> Iterator[str]:
    """Make the tables and indexes of this release. Yield a sentence for each step done."""
    with closing(PostgresStore(url)) as store:
        before: int | None = None
        try:
            with _connected(url) as connection:
                before = _version(connection)
        except psycopg.Error:
            pass  # let the store report what is wrong
        store.get(None, "a key that is asked for to bring the schema up to date")
    known = len(schema.migrations())
    if before is None:
        yield f"made the tables, schema {known}"
    elif before < known:
        yield f"brought the schema from {before} to {known}"
    try:
        with _connected(url) as connection:
            yield from _indexed(connection)
    except psycopg.Error as error:
        raise explain(error, _target(url).where) from error


def _indexed(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """Make each missing index without blocking writers. Yield a sentence for each."""
    for name, what in _MAKE.items():
        found = connection.execute(_VALID, (name,)).fetchone()
        if found == (True,):
            continue
        if found is not None:  # it is invalid: the process that made it was cut off
            connection.execute(f"DROP INDEX CONCURRENTLY {name}".encode())
        connection.execute(f"CREATE INDEX CONCURRENTLY {name} {what}".encode())
        yield f"made the index {name}"


def _version(connection: psycopg.Connection[Any]) -> int | None:
    """Return how many migrations the database has seen, or None if it has no tables."""
    found = connection.execute(schema.FIND).fetchone()
    if not found or not found[0]:
        return None
    row = connection.execute("SELECT version FROM oncekey_schema").fetchone()
    return None if row is None else int(row[0])


def _connected(url: str) -> psycopg.Connection[Any]:
    target = _target(url)
    return psycopg.connect(target.conninfo, **target.options)


def _target(url: str) -> Target:
    return Target.of(url, 1, "5s", "5s", listen=False)
