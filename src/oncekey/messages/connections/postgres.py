"""The inbox's own connections to PostgreSQL. Each statement is its own transaction."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import Connection, IsolationLevel, waiting
from psycopg.rows import tuple_row

from oncekey.compat import generation, pause
from oncekey.errors import ConfigurationError
from oncekey.messages.drivers.detection import pyformat
from oncekey.messages.schema import INBOX_SCHEMA, Schema
from oncekey.messages.statements import POSTGRES, Given, Values
from oncekey.stores.connections import PerProcess
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.connections import stale
from oncekey.stores.postgres.errors import PAUSES, explain, explain_connect, pause_after
from oncekey.stores.postgres.protocol import NoAnswerError, check_confirmed, collect_unconfirmed
from oncekey.stores.postgres.schema import check_server

if TYPE_CHECKING:
    from psycopg.abc import PQGen


T = TypeVar("T")

_KEPT: Final = 4
_MIGRATING: Final = 60.0


class _Impatient(Connection[Any]):
    """A connection that is closed when the server does not answer within `patience` seconds."""

    patience = 5.0
    unconfirmed: list[str]
    pooled = False
    """Whether a pooler shares the sessions with others."""

    def wait(
        self,
        gen: PQGen[T],
        interval: float = 0.1,
        timeout: float | None = None,  # noqa: ARG002 - `patience` is the time-out
    ) -> T:
        """Wait as the driver does, but send no cancel request when interrupted.

        The server may be committing: a cancel request would make it go on without its standby.
        Raise NoAnswerError after `patience` seconds.
        """
        return waiting.wait(_in_time(gen, self), self.pgconn.socket, interval=interval)


def _in_time(gen: PQGen[T], connection: _Impatient) -> PQGen[T]:
    end = monotonic() + connection.patience
    ready: Any = None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as over:
            value: T = over.value
            return value
        ready = yield wanted
        if not ready and monotonic() > end:
            connection.pgconn.finish()
            msg = f"it said nothing for {connection.patience:g} seconds"
            raise NoAnswerError(msg)


class PostgresConnections:
    """Connections of this process, opened when they are needed."""

    dialect = POSTGRES

    def __init__(self, url: str, schema: Schema = INBOX_SCHEMA) -> None:
        """Parse the URL. The first statement opens a connection."""
        self.schema = schema
        target = Target.of(url, 1, "5s", "5s", listen=False)
        self.target = target
        self._here = PerProcess(partial(_Lines, target, schema))

    def run(self, statement: str, values: Given, *, keeper: bool = False) -> list[Any]:  # noqa: ARG002 - SQLite tells the keeper apart
        """Run the statement and commit it. Return its rows."""
        return self._here.here().run(statement, values() if callable(values) else values)

    def identity(self) -> str:
        """Bring the schema up to date. Return the identity of the database."""
        return self._here.here().identity()

    def found(self) -> str:
        """Do the same as `identity`: other transactions do not block a migration."""
        return self.identity()

    @property
    def known(self) -> str:
        """The identity of the database if it was read already, or an empty string."""
        return self._here.here().known

    def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        self._here.here().close()


class _Lines:
    def __init__(self, target: Target, schema: Schema) -> None:
        self._target = target
        self._schema = schema
        self._lock = threading.Lock()
        self._idle: list[_Impatient] = []
        self._born = generation()
        self.known = ""

    def run(self, statement: str, values: Values) -> list[Any]:
        connection, text = self._take(), pyformat(statement)
        try:
            for longest in PAUSES:
                try:
                    return _rows(connection, text, values)
                except psycopg.Error as error:
                    pause(pause_after(error, longest))
            return _rows(connection, text, values)
        except psycopg.Error as error:
            raise explain(error, self._target.where, lost=connection.closed) from error
        except BaseException:  # interrupted: its next answer may be that of this statement
            connection.close()
            raise
        finally:
            self._give(connection)

    def identity(self) -> str:
        if not self.known:
            connection = self._take()
            try:
                self.known = self._prepared(connection)
            except psycopg.Error as error:
                raise explain(error, self._target.where, lost=connection.closed) from error
            except BaseException:  # interrupted, as above
                connection.close()
                raise
            finally:
                self._give(connection)
        return self.known

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self.known = self._idle, [], ""
        for connection in idle:
            connection.close()

    def __del__(self) -> None:
        """Close connections that the user forgot to close."""
        if self._born == generation():  # a forked child must not touch its parent's connections
            for connection in self._idle:
                connection.pgconn.finish()

    def _take(self) -> _Impatient:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if not stale(connection):
                return connection
            connection.close()
        return self._connect()

    def _connect(self) -> _Impatient:
        target = self._target
        try:
            made = _Impatient.connect(target.conninfo, row_factory=tuple_row, **target.options)
            assert isinstance(made, _Impatient)  # noqa: S101 - as the class method says
            made.unconfirmed = []
            made.add_notice_handler(partial(collect_unconfirmed, made.unconfirmed))
            made.isolation_level = IsolationLevel.READ_COMMITTED  # for the one that migrates
            try:
                ((pid,),) = _rows(made, "SELECT pg_backend_pid()", {})
            except BaseException:
                made.close()
                raise
        except psycopg.Error as error:
            raise explain_connect(error, target.where) from error
        if pid != made.info.backend_pid:  # a pooler makes this up
            made.pooled = True
            made.prepare_threshold = None  # the next statement may run in another session
        return made

    def _give(self, connection: _Impatient) -> None:
        with self._lock:
            kept = not connection.closed and len(self._idle) < _KEPT
            if kept:
                self._idle.append(connection)
        if not kept:
            connection.close()

    def _prepared(self, connection: _Impatient) -> str:
        check_server(connection.pgconn.server_version, self._target.where)
        if connection.pooled:
            self._refuse_statement_mode(connection)
        if self._steps(connection):
            connection.patience = _MIGRATING
            with connection.transaction():
                connection.execute(self._schema.locked.encode())
                for script in self._steps(connection):
                    connection.execute(script.encode())
                connection.execute(self._schema.bump(POSTGRES).encode())
            connection.patience = _Impatient.patience
        with suppress(psycopg.errors.UndefinedTable):
            return str(_rows(connection, self._schema.read, {})[0][2])
        return ""

    def _refuse_statement_mode(self, connection: _Impatient) -> None:
        try:
            with connection.transaction():
                pass
        except psycopg.Error as error:
            if "statement pooling mode" not in str(error):
                raise
            msg = (
                f"PgBouncer at {self._target.where} is in statement mode, and an inbox needs "
                f"transactions; set pool_mode to transaction or session"
            )
            raise ConfigurationError(msg) from error

    def _steps(self, connection: _Impatient) -> tuple[str, ...]:
        (found,) = _rows(connection, self._schema.find(POSTGRES), {})
        read = _rows(connection, self._schema.read, {}) if found[0] else []
        return self._schema.missing(found, read, POSTGRES)


def _rows(connection: _Impatient, statement: str, values: Values) -> list[Any]:
    """Run the statement. Return its rows. Raise UnconfirmedError if no standby may have it."""
    connection.unconfirmed.clear()
    cursor = connection.execute(statement.encode(), values or None)
    check_confirmed(connection.unconfirmed)
    return cursor.fetchall() if cursor.description else []
