"""The doctor's checks of PostgreSQL: crashes, fail-overs, read-only servers and its clock."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

from oncekey.doctor.examination import Examination, Refused, conduct, conduct_async
from oncekey.doctor.finding import (
    BACKLOG,
    EXPIRED_LONG,
    Finding,
    backlog,
    danger,
    fine,
    held_since,
    indexes,
    unread,
    warning,
)
from oncekey.doctor.lifetimes import skewed
from oncekey.stores.postgres.address import Target, refuse_transaction
from oncekey.stores.postgres.errors import explain_connect
from oncekey.stores.postgres.pool import lender
from oncekey.stores.postgres.pool_async import lender as lender_async
from oncekey.stores.sqlalchemy import SharedEngine

_OLDEST: Final = 14
_SETTINGS: Final = (
    "server_version_num",
    "fsync",
    "full_page_writes",
    "synchronous_commit",
    "synchronous_standby_names",
    "transaction_read_only",
    "autovacuum",
)
SETTINGS: Final = "SELECT " + ", ".join(f"current_setting('{name}')" for name in _SETTINGS)
RECOVERY: Final = "SELECT pg_is_in_recovery()"
REPLICAS: Final = "SELECT count(*) FROM pg_stat_replication"
TABLE: Final = (
    "SELECT relpersistence FROM pg_class "
    "WHERE relname = 'oncekey_records' AND relkind = 'r' AND pg_table_is_visible(oid)"
)
CLOCK: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"


def examination() -> Examination[str]:
    """Check everything that can be read from one server."""
    findings: list[Finding] = []
    rows = yield SETTINGS
    if isinstance(rows, Refused):
        what, fix = "the settings of the server", "connect as the role that your service uses"
        findings.append(unread("postgres.settings", what, rows.words, fix))
        settings: dict[str, str] = {}
    else:
        settings = dict(zip(_SETTINGS, map(str, rows[0]), strict=True))
        findings += _findings(settings)
    findings.append(_recovery((yield RECOVERY)))
    findings.append(_replicas((yield REPLICAS), settings))
    rows = yield TABLE
    findings.append(_table(rows))
    if rows and not isinstance(rows, Refused):
        findings += yield from _contents()
    before = time.time()
    rows = yield CLOCK
    if not isinstance(rows, Refused):
        doubt = (time.time() - before) / 2
        findings.append(skewed("postgres.clock", rows[0][0] - before - doubt, doubt))
    return findings


def _findings(settings: dict[str, str]) -> Iterator[Finding]:
    yield _version(settings["server_version_num"])
    yield _fsync(settings)
    yield _commit(settings["synchronous_commit"])
    if settings["transaction_read_only"] == "on":
        meaning = "transactions are read-only: every claim is refused"
        evidence = "transaction_read_only=on"
        fix = "set default_transaction_read_only to off for this role and database"
        yield danger("postgres.read_only", meaning, evidence, fix)
    if settings["autovacuum"] == "off":
        meaning = "nothing gives back the space of records that were purged: the table only grows"
        fix = "set autovacuum to on"
        yield warning("postgres.autovacuum", meaning, "autovacuum=off", fix)


def _version(number: str) -> Finding:
    check, version = "postgres.version", int(number) // 10_000
    evidence = f"server_version_num={number}"
    if version >= _OLDEST:
        return fine(check, "the server is new enough", evidence)
    fix = f"upgrade to {_OLDEST} or newer"
    return danger(check, "the server is too old for the statements", evidence, fix)


def _fsync(settings: dict[str, str]) -> Finding:
    check = "postgres.fsync"
    evidence = f"fsync={settings['fsync']}, full_page_writes={settings['full_page_writes']}"
    if "off" in (settings["fsync"], settings["full_page_writes"]):
        meaning = "a power cut loses or damages records, and everything else in the database"
        return danger(check, meaning, evidence, "set fsync and full_page_writes to on")
    return fine(check, "what was committed survives a power cut", evidence)


def _commit(value: str) -> Finding:
    check, evidence = "postgres.commit", f"synchronous_commit={value}"
    if value != "off":
        return fine(check, "a claim is on the disk before it is answered", evidence)
    meaning = (
        "the store's own writes wait for the disk all the same, but a crash loses transactions of "
        "yours, with an atomic inbox in them, that were committed"
    )
    return warning(check, meaning, evidence, "set synchronous_commit to on")


def _recovery(rows: Any) -> Finding:
    check = "postgres.role"
    if isinstance(rows, Refused):
        return unread(check, "whether the server takes writes", rows.words, "it must be a primary")
    evidence = f"pg_is_in_recovery()={'true' if rows[0][0] else 'false'}"
    if not rows[0][0]:
        return fine(check, "the server takes writes", evidence)
    meaning = "the server is a standby: every claim is refused"
    fix = "name all servers and add ?target_session_attrs=read-write to the URL"
    return danger(check, meaning, evidence, fix)


def _replicas(rows: Any, settings: dict[str, str]) -> Finding:
    check = "postgres.replication"
    if isinstance(rows, Refused):
        what = "whether a fail-over can lose records"
        return unread(check, what, rows.words, "synchronous_standby_names should name a standby")
    names, commit = (
        settings.get(name, "unknown")
        for name in ("synchronous_standby_names", "synchronous_commit")
    )
    evidence = (
        f"standbys={rows[0][0]}, synchronous_standby_names={names!r}, synchronous_commit={commit}"
    )
    if not rows[0][0] and not names:
        return fine(check, "there is no standby, so no fail-over can lose records", evidence)
    if names and commit in ("on", "remote_apply"):
        return fine(check, "a claim is on a standby's disk before it is answered", evidence)
    meaning = "a fail-over loses records that no standby had yet, and what they protect runs again"
    fix = "name a standby in synchronous_standby_names, with synchronous_commit on"
    return warning(check, meaning, evidence, fix)


def _table(rows: Any) -> Finding:
    check = "postgres.table"
    if isinstance(rows, Refused):
        return unread(check, "the table of records", rows.words, "it must not be UNLOGGED")
    if not rows:
        return fine(check, "the table of records is made at the first use", "no oncekey_records")
    evidence = f"relpersistence={_text(rows[0][0])}"
    if _text(rows[0][0]) == "p":
        return fine(check, "the table of records survives a crash", evidence)
    fix = "ALTER TABLE oncekey_records SET LOGGED"
    return danger(check, "a crash empties the table of records: it is UNLOGGED", evidence, fix)


INDEXES: Final = ("oncekey_records_due", "oncekey_records_created", "oncekey_records_held")
VALID: Final = (
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = 'oncekey_records'::regclass AND i.indisvalid"
)
MAY_COUNT: Final = (
    "SELECT has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT') "
    "AND has_table_privilege(oid, 'UPDATE') FROM pg_class "
    "WHERE oid = to_regclass('oncekey_activity')"
)
_NOW: Final = "extract(epoch FROM clock_timestamp()) * 1000000"
HELD: Final = (
    f"SELECT count(*), (({_NOW} - min(updated)) / 1000000)::float8 "  # noqa: S608 - only constants
    "FROM oncekey_records WHERE due = 0 AND status = 'held'"
)
EXPIRED: Final = (
    "SELECT count(*) FROM (SELECT FROM oncekey_records WHERE due > 0 "  # noqa: S608 - only constants
    f"AND due <= (SELECT ({_NOW})::bigint - {EXPIRED_LONG * 1_000_000}) LIMIT {BACKLOG + 1}) t"
)


def _contents() -> Generator[str, Any, list[Finding]]:
    """Check the indexes, and how long records are held and expired."""
    rows = yield VALID
    if isinstance(rows, Refused):
        what = "the indexes of the table of records"
        return [unread("postgres.indexes", what, rows.words, "run `oncekey migrate` once")]
    there = {_text(name) for (name,) in rows}
    missing = [name for name in INDEXES if name not in there]
    found = [indexes("postgres.indexes", missing)]
    rows = yield MAY_COUNT
    if rows and not isinstance(rows, Refused) and not rows[0][0]:
        meaning = "the charts of the dashboard stay empty: this role may not count its calls"
        evidence = "it lacks SELECT, INSERT or UPDATE on oncekey_activity"
        fix = "GRANT SELECT, INSERT, UPDATE ON oncekey_activity TO this role, as the owner"
        found.append(warning("postgres.charts", meaning, evidence, fix))
    if missing:
        return found  # what follows would read the whole table
    for question, check in ((HELD, "postgres.held"), (EXPIRED, "postgres.backlog")):
        rows = yield question
        if isinstance(rows, Refused):
            fix = "grant this role SELECT on oncekey_records"
            found.append(unread(check, "the records", rows.words, fix))
        elif question is HELD:
            found.append(held_since(check, *rows[0]))
        else:
            found.append(backlog(check, rows[0][0]))
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# Sending the doctor's questions to PostgreSQL, over a connection of its own or the caller's.


def of_store(store: Any) -> list[Finding]:
    """Return the findings about the store's server."""
    target: Target = store.target
    try:
        with _connection(target) as connection:

            def ask(statement: str) -> Any:
                try:
                    with connection.transaction(), connection.cursor(row_factory=tuple_row) as rows:
                        return rows.execute(statement).fetchall()
                except psycopg.Error as error:
                    if connection.closed:
                        raise
                    return Refused(_words(error))

            return conduct(examination(), ask)
    except psycopg.Error as error:
        raise explain_connect(error, target.where) from error


async def of_store_async(store: Any) -> list[Finding]:
    """Return the findings about the store's server."""
    target: Target = store.target
    try:
        async with _connection_async(target) as connection:

            async def ask(statement: str) -> Any:
                try:
                    cursor = connection.cursor(row_factory=tuple_row)
                    async with connection.transaction(), cursor as rows:
                        return await (await rows.execute(statement)).fetchall()
                except psycopg.Error as error:
                    if connection.closed:
                        raise
                    return Refused(_words(error))

            return await conduct_async(examination(), ask)
    except psycopg.Error as error:
        raise explain_connect(error, target.where) from error


@contextmanager
def _connection(target: Target) -> Iterator[Any]:
    """Open a connection and close it afterwards, or use the caller's and leave it open."""
    given = target.given
    if given is None:
        with psycopg.Connection.connect(target.conninfo, **target.options) as connection:
            yield connection
    elif isinstance(given, psycopg.Connection):
        refuse_transaction(given.pgconn)
        yield given
    elif isinstance(given, SharedEngine):
        engine = lender(target)
        line = engine.take()
        try:
            yield line.connection
        finally:
            engine.give(line)
    else:
        with given.connection() as connection:
            yield connection


@asynccontextmanager
async def _connection_async(target: Target) -> AsyncIterator[Any]:
    """Open a connection and close it afterwards, or use the caller's and leave it open."""
    given = target.given
    if given is None:
        connecting = psycopg.AsyncConnection.connect(target.conninfo, **target.options)
        async with await connecting as connection:
            yield connection
    elif isinstance(given, psycopg.AsyncConnection):
        refuse_transaction(given.pgconn)
        yield given
    elif isinstance(given, SharedEngine):
        engine = lender_async(target)
        line = await engine.take()
        try:
            yield line.connection
        finally:
            await engine.give(line)
    else:
        async with given.connection() as connection:
            yield connection


def _words(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error)
