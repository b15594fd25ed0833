"""The doctor's checks of MariaDB and MySQL: crashes, power cuts, read-only servers, the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from oncekey.doctor.examination import Examination, Refused, conduct, conduct_async
from oncekey.doctor.finding import (
    BACKLOG,
    EXPIRED_LONG,
    Finding,
    backlog,
    danger,
    fine,
    held_since,
    unread,
    warning,
)
from oncekey.doctor.lifetimes import skewed
from oncekey.errors import ConfigurationError
from oncekey.stores.mysql import schema
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.drivers import FAILURES, ask, ask_async
from oncekey.stores.mysql.errors import explain_connect, is_refusal
from oncekey.stores.mysql.pool import lender
from oncekey.stores.mysql.pool_async import lender as lender_async

SETTINGS: Final = (
    "SELECT @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, @@global.sync_binlog, "
    "@@global.innodb_doublewrite"
)
_NOW: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
CLOCK: Final = f"SELECT {_NOW}"
HELD: Final = (
    f"SELECT COUNT(*), ({_NOW} - MIN(updated)) / 1000000 "  # noqa: S608 - only constants
    "FROM oncekey_records WHERE due = 0 AND status = 'held'"
)
EXPIRED: Final = (
    "SELECT COUNT(*) FROM (SELECT 1 FROM oncekey_records WHERE due > 0 "  # noqa: S608 - only constants
    f"AND due <= {_NOW} - {EXPIRED_LONG * 1_000_000} LIMIT {BACKLOG + 1}) t"
)


def examination(where: str) -> Examination[str]:
    """Check everything that can be read from one server."""
    findings = [_fit((yield schema.SERVER), where)]
    rows = yield SETTINGS
    if isinstance(rows, Refused):
        fix = "connect as the user that your service uses"
        findings.append(unread("mysql.settings", "the settings of the server", rows.words, fix))
    else:
        findings += _durable(*(str(value).upper() for value in rows[0]))
    rows = yield schema.TABLES
    if not isinstance(rows, Refused):
        findings += _tables(rows)
        if rows:
            findings += yield from _contents()
    before = time.time()
    rows = yield CLOCK
    if not isinstance(rows, Refused):
        doubt = (time.time() - before) / 2
        findings.append(skewed("mysql.clock", rows[0][0] / 1_000_000 - before - doubt, doubt))
    return findings


def _fit(rows: Any, where: str) -> Finding:
    check = "mysql.server"
    if isinstance(rows, Refused):
        fix = "connect as the user that your service uses"
        return unread(check, "the version of the server", rows.words, fix)
    try:
        schema.check_server(rows[0], where)
    except ConfigurationError as error:
        meaning, _, fix = str(error).rpartition("; ")
        return danger(check, f"every claim is refused: {meaning}", f"version={rows[0][0]}", fix)
    return fine(check, "the server keeps what the store promises", f"version={rows[0][0]}")


def _durable(flush: str, logged: str, synced: str, doublewrite: str) -> Iterator[Finding]:
    evidence = f"innodb_flush_log_at_trx_commit={flush}"
    if flush == "0":
        meaning = "a server that is killed loses the claims and results of the last second"
        fix = "set innodb_flush_log_at_trx_commit to 1"
        yield danger("mysql.commit", meaning, evidence, fix)
    elif flush == "2":
        meaning = "a power cut loses the claims and results of the last second"
        fix = "set innodb_flush_log_at_trx_commit to 1"
        yield warning("mysql.commit", meaning, evidence, fix)
    else:
        yield fine("mysql.commit", "a claim is on the disk before it is answered", evidence)
    if logged in ("1", "ON") and synced != "1":
        meaning = "after a power cut the binary log may lack claims, and so do its replicas"
        evidence = f"log_bin=ON, sync_binlog={synced}"
        yield warning("mysql.binlog", meaning, evidence, "set sync_binlog to 1")
    if doublewrite in ("0", "OFF"):
        meaning = "a power cut may damage pages, with the records in them"
        evidence = "innodb_doublewrite=OFF"
        yield warning("mysql.doublewrite", meaning, evidence, "set innodb_doublewrite to ON")


def _tables(rows: Any) -> Iterator[Finding]:
    check = "mysql.tables"
    engines = ", ".join(f"{name}={engine}" for name, engine in rows)
    try:
        there = schema.check_tables(rows, "this server")
    except ConfigurationError as error:
        meaning, _, fix = str(error).rpartition("; ")
        yield danger(check, f"every claim is refused: {meaning}", engines, fix)
        return
    meaning = "the tables are in InnoDB" if there else "the tables are made at the first use"
    yield fine(check, meaning, engines or "no oncekey_records")


def _contents() -> Examination[str]:
    """Check how long records are held and expired."""
    found = []
    for question, check in ((HELD, "mysql.held"), (EXPIRED, "mysql.backlog")):
        rows = yield question
        if isinstance(rows, Refused):
            fix = "grant this user SELECT on oncekey_records"
            found.append(unread(check, "the records", rows.words, fix))
        elif question is HELD:
            count, seconds = rows[0]
            found.append(held_since(check, count, None if seconds is None else float(seconds)))
        else:
            found.append(backlog(check, rows[0][0]))
    return found


# Sending the doctor's questions over a connection that nobody else uses meanwhile.


def of_store(store: Any) -> list[Finding]:
    """Return the findings about the store's server."""
    target: MySQLTarget = store.target
    connections = lender(target)
    line = connections.take()
    line.broken = True  # it is closed afterwards, also if an engine has lent it
    try:
        for statement in schema.SESSION:
            ask(line.connection, statement, target.timeout)

        def answer(statement: str) -> Any:
            try:
                return ask(line.connection, statement, target.timeout)
            except FAILURES as error:
                return _refused(error)

        return conduct(examination(target.where), answer)
    except FAILURES as error:
        raise explain_connect(error, target.where) from error
    finally:
        connections.give(line)


async def of_store_async(store: Any) -> list[Finding]:
    """Return the findings about the store's server."""
    target: MySQLTarget = store.target
    connections = lender_async(target)
    line = await connections.take()
    line.broken = True  # it is closed afterwards, also if an engine has lent it
    try:
        for statement in schema.SESSION:
            await ask_async(line.connection, statement, target.timeout)

        async def answer(statement: str) -> Any:
            try:
                return await ask_async(line.connection, statement, target.timeout)
            except FAILURES as error:
                return _refused(error)

        return await conduct_async(examination(target.where), answer)
    except FAILURES as error:
        raise explain_connect(error, target.where) from error
    finally:
        await connections.give(line)


def _refused(error: BaseException) -> Refused:
    """Return what the server said. Raise the error if the connection is lost."""
    if not is_refusal(error):
        raise error
    return Refused(str(error.args[-1]))
