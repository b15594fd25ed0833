"""How one process asks PostgreSQL: on a connection that is lent, in a schema that is there."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import psycopg
from psycopg import Connection

from oncekey.stores import postgres_schema as schema
from oncekey.stores.postgres_ask import ask
from oncekey.stores.postgres_errors import explain, explain_connect, schema_is_gone
from oncekey.stores.postgres_lenders import lender
from oncekey.stores.postgres_places import Gate
from oncekey.stores.postgres_target import Target
from oncekey.stores.postgres_wire import Line, Statement, Values, say

_MIGRATING: Final = 60.0
"""How many seconds a step of a migration may take, waiting for others who do the same included."""


class Link:
    """A way to run statements, from any number of threads."""

    def __init__(self, target: Target) -> None:
        """Nothing is opened before the first statement."""
        self._target = target
        self._lender = lender(target)
        self._room = Gate(target.patience, target.size, target.lock)
        self._migrating = Gate(target.patience)
        self._ready = False

    def run(self, statement: Statement, values: Values) -> list[bytes]:
        """What one statement answers, which is prepared and a transaction of its own."""
        with self._room:
            line = self._lender.take()
            try:
                if not self._ready:
                    with self._migrating:
                        self._prepare(line)
                return ask(line, statement, values, self._target.timeout)
            except psycopg.Error as error:
                if schema_is_gone(error):
                    self._ready = False
                raise explain(error, self._target.where, lost=line.connection.closed) from error
            except BaseException:  # cut off: nobody knows what it would answer next
                self._lender.drop(line)
                raise
            finally:
                self._lender.give(line)

    def close(self) -> None:
        """The connections are closed, those in use when they come back, but no caller's."""
        self._lender.close()

    def _prepare(self, line: Line[Connection[Any]]) -> None:
        """The database has the schema. The verb itself was not sent yet, and did not happen."""
        where = self._target.where
        schema.check_server(line.connection.pgconn.server_version, where)
        try:
            if self._missing(line, self._target.timeout):
                self._migrate(line)
        except psycopg.Error as error:
            raise (explain_connect if line.connection.closed else explain)(error, where) from error
        self._ready = True

    def _migrate(self, line: Line[Connection[Any]]) -> None:
        """One transaction, so that a migration that fails leaves nothing behind."""
        try:
            self._say(line, schema.BEGIN, _MIGRATING)
            for script in self._missing(line, _MIGRATING):
                self._say(line, script, _MIGRATING)
            self._say(line, b"COMMIT", _MIGRATING)
        except BaseException:
            with suppress(psycopg.Error):
                self._say(line, b"ROLLBACK", self._target.timeout)
            raise

    def _missing(self, line: Line[Connection[Any]], seconds: float) -> tuple[bytes, ...]:
        """The migrations that the database has yet to see."""
        found = self._say(line, schema.FIND, seconds) == schema.FOUND
        read = self._say(line, schema.READ, seconds) if found else []
        return schema.missing(read, schema.migrations())

    def _say(self, line: Line[Connection[Any]], script: bytes, seconds: float) -> list[bytes]:
        return line.connection.wait(say(line, script, seconds))
