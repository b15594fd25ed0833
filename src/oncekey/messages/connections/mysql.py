"""The inbox's own connections to MySQL or MariaDB. Each statement is committed by itself."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import json

from oncekey.compat import generation, pause
from oncekey.errors import ConfigurationError, StoreError
from oncekey.messages.drivers.detection import pyformat
from oncekey.messages.schema import INBOX_SCHEMA, Schema
from oncekey.messages.statements import MYSQL, Given, Values, as_hex
from oncekey.stores.connections import PerProcess
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.drivers import FAILURES, close, connect, is_stale
from oncekey.stores.mysql.errors import (
    PAUSES,
    explain,
    explain_connect,
    explain_preparing,
    is_deadlock,
    schema_is_gone,
)
from oncekey.stores.mysql.schema import SERVER, check_server

if TYPE_CHECKING:
    from oncekey.stores.mysql.drivers import Connection

_KEPT: Final = 4
_PATIENT: Final = "SET SESSION innodb_lock_wait_timeout = 1"
"""How many seconds a statement waits for a row that a transaction of the user has locked."""
_MIGRATING: Final = 60
_WAIT_LESS: Final = "SET SESSION lock_wait_timeout = 10"
"""How many seconds a migration waits for a table that transactions of the user have in use."""
_FOUND: Final = ":found"
"""The parameter of a step that is given the rows of the step before it."""


class MySQLConnections:
    """Connections of this process, opened when they are needed."""

    dialect = MYSQL

    def __init__(self, url: str, schema: Schema = INBOX_SCHEMA) -> None:
        """Parse the URL. The first statement opens a connection."""
        self.schema = schema
        self.target = MySQLTarget.of(url, 1, "5s", "5s")
        self._here = PerProcess(partial(_MySQLLines, self.target, schema))

    def run(self, statement: str, values: Given, *, keeper: bool = False) -> list[Any]:  # noqa: ARG002 - SQLite tells the keeper apart
        """Run the statement and commit it. Return its rows, one for each changed row if none."""
        return self._here.here().run(statement, values() if callable(values) else values)

    def identity(self) -> str:
        """Bring the schema up to date. Return the identity of the database."""
        return self._here.here().identity()

    def found(self) -> str:
        """Do the same as `identity`: MySQL commits a transaction that changes a schema."""
        return self.identity()

    @property
    def known(self) -> str:
        """The identity of the database if it was read already, or an empty string."""
        return self._here.here().known

    def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        self._here.here().close()


class _MySQLLines:
    def __init__(self, target: MySQLTarget, schema: Schema) -> None:
        self._target = target
        self._schema = schema
        self._lock = threading.Lock()
        self._migrating = threading.Lock()
        self._idle: list[Connection] = []
        self._born = generation()
        self.known = ""

    def run(self, statement: str, values: Values) -> list[Any]:
        connection = self._take()
        usable = True
        try:
            for longest in PAUSES:
                try:
                    return _rows(connection, statement, values)
                except FAILURES as error:
                    if not is_deadlock(error):
                        raise
                    pause(longest)
            return _rows(connection, statement, values)
        except FAILURES as error:
            usable = not (is_stale(connection) or isinstance(error, OSError))
            if schema_is_gone(error):
                self.known = ""
            raise explain(error, self._target.where) from error
        except BaseException:  # interrupted: its next answer may be that of this statement
            usable = False
            raise
        finally:
            self._give(connection, usable=usable)

    def identity(self) -> str:
        if not self.known:
            with self._migrating:
                if not self.known:
                    self.known = self._prepared()
        return self.known

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            self.known = ""
        if self._born == generation():  # a forked child must not touch its parent's connections
            for connection in idle:
                close(connection)

    def _take(self) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect(self._target.timeout)
            if not is_stale(connection):
                return connection
            close(connection)

    def _connect(self, seconds: float) -> Connection:
        try:
            connection = connect(self._target, seconds)
        except FAILURES as error:
            raise explain_connect(error, self._target.where) from error
        try:
            _rows(connection, _PATIENT, {})
            check_server(_rows(connection, SERVER, {})[0], self._target.where)
        except FAILURES as error:
            close(connection)
            raise explain_preparing(error, self._target.where) from error
        except BaseException:
            close(connection)
            raise
        return connection

    def _give(self, connection: Connection, *, usable: bool) -> None:
        with self._lock:
            kept = usable and len(self._idle) < _KEPT
            if kept:
                self._idle.append(connection)
        if not kept:
            close(connection)

    def _prepared(self) -> str:
        connection = self._connect(_MIGRATING)
        try:
            self._check_engines(connection)
            if self._steps(connection):
                self._migrate(connection)
                self._check_engines(connection)
            return self._read(connection)[0][2]
        except FAILURES as error:
            raise explain_preparing(error, self._target.where) from error
        finally:
            close(connection)  # which gives the lock for migrations back

    def _migrate(self, connection: Connection) -> None:
        """Run the steps that are missing, one process at a time. Each of them may be repeated."""
        _rows(connection, _WAIT_LESS, {})
        if _rows(connection, self._schema.locked_by_name(_MIGRATING // 2), {}) != [(1,)]:
            msg = (
                f"another process has been migrating {self._schema.table} at "
                f"{self._target.where} for long; nothing was changed"
            )
            raise StoreError(msg, happened=False)
        for script in self._steps(connection):
            for statement in _statements(script):
                _rows(connection, statement, {})
        _rows(connection, self._schema.bump(MYSQL), {})

    def _check_engines(self, connection: Connection) -> None:
        for table, engine in _rows(connection, self._schema.engines, {}):
            if engine != "InnoDB":
                msg = (
                    f"the table {table} at {self._target.where} is in {engine}, which has no "
                    f"transactions; ALTER TABLE {table} ENGINE = InnoDB"
                )
                raise ConfigurationError(msg)

    def _steps(self, connection: Connection) -> tuple[str, ...]:
        (found,) = _rows(connection, self._schema.find(MYSQL), {})
        return self._schema.missing(found, self._read(connection) if found[0] else [], MYSQL)

    def _read(self, connection: Connection) -> list[tuple[int, int, str]]:
        """Return the row of the version table. Names have a binary collation, and come as bytes."""
        rows = _rows(connection, self._schema.read, {})
        return [(version, oldest, identity.decode()) for version, oldest, identity in rows]


def _statements(script: str) -> list[str]:
    plain = re.sub(r"^\s*--.*\n", "", script, flags=re.MULTILINE)
    return [one for part in plain.split(";\n") if (one := part.strip())]


def _rows(connection: Connection, statement: str, values: Values) -> list[Any]:
    """Run the steps of the statement. Return the rows of the last, or of the first that has any.

    Steps that are given what others have found are one transaction.
    """
    together = _FOUND in statement
    if together:
        connection.begin()
    try:
        found = _found(connection, statement, values)
        if together:
            connection.commit()
    except FAILURES:
        if together:
            with suppress(*FAILURES):  # it may be broken
                connection.rollback()
        raise
    return found


def _found(connection: Connection, statement: str, values: Values) -> list[Any]:
    found: list[Any] = []
    for step in MYSQL.steps(statement):
        if _FOUND in step:
            if not found:
                return []
            values = {**values, "found": as_hex(json.encode(found))}
        elif found and found[0]:
            return found
        with connection.cursor() as cursor:
            cursor.execute(pyformat(step), values or None)
            plain = cursor.description is None
            found = MYSQL.rows(cursor.rowcount) if plain else list(cursor.fetchall())
    return found
