"""Check for the tables in a MariaDB or MySQL database, and make or migrate them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

from oncekey.cli.errors import NoTablesError
from oncekey.stores import MySQLStore
from oncekey.stores.mysql import schema
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.drivers import FAILURES, ask, close, connect


def must_exist(url: str) -> None:
    """Raise `NoTablesError` if the database can be reached and has none of our tables."""
    try:
        there = _version(url) is not None
    except FAILURES:
        return  # let the store report what is wrong
    if not there:
        msg = (
            "the database holds no records of oncekey, and looking must not change it; "
            "`oncekey migrate` makes the tables"
        )
        raise NoTablesError(msg)


def migrated(url: str) -> Iterator[str]:
    """Make the tables and procedures of this release. Yield a sentence for each step done."""
    before: int | None = None
    with suppress(*FAILURES):  # let the store report what is wrong
        before = _version(url)
    with closing(MySQLStore(url)) as store:
        store.get(None, "a key that is asked for to bring the schema up to date")
    known = len(schema.migrations())
    if before is None:
        yield f"made the tables, schema {known}"
    elif before < known:
        yield f"brought the schema from {before} to {known}"


def _version(url: str) -> int | None:
    """Return how many migrations the database has seen, or None if it has no tables."""
    target = MySQLTarget.of(url, 1, "5s", "5s")
    connection = connect(target, target.timeout)
    try:
        if not schema.check_tables(ask(connection, schema.TABLES, target.timeout), target.where):
            return None
        rows = ask(connection, schema.READ, target.timeout)
    finally:
        close(connection)
    return int(rows[0][0]) if rows else None
