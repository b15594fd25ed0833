"""The connections of the store: its own, those of the caller's pool, or the caller's only one.

`engine_async` has those of an engine of SQLAlchemy.

A caller that needs a new connection opens it, so that it learns at once what is wrong with the
server and waits for no other caller's retries. There is no background thread or task that a fork,
or the end of an event loop, could leave behind.
"""

# Generated from pool_async.py by "make generate": do not edit.

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol

import psycopg
from psycopg import Connection
from psycopg.pq import ConnStatus

from oncekey.compat import generation, pause
from oncekey.stores.connections import Gate
from oncekey.stores.postgres import schema
from oncekey.stores.postgres.address import (
    Target,
    check_colour,
    close_unless_idle,
    refuse_transaction,
)
from oncekey.stores.postgres.connections import hearing, stale
from oncekey.stores.postgres.errors import (
    PAUSES,
    elsewhere,
    explain,
    explain_connect,
    pause_after,
    schema_is_gone,
)
from oncekey.stores.postgres.protocol import (
    PostgresLine,
    Statement,
    Values,
    ask,
    say,
    wait,
)
from oncekey.stores.sqlalchemy import SharedEngine

_BAD: Final = ConnStatus.BAD
_KEPT: Final = 2
_IDLE: Final = 60.0
"""Two unused connections stay open for good, more of them only for 60 seconds."""


class Lender(Protocol):
    """Lend a connection to one verb at a time."""

    def take(self) -> PostgresLine[Connection[Any]]:
        """Return a connection that is idle."""
        ...

    def give(self, line: PostgresLine[Connection[Any]]) -> None:
        """Give the connection back after the verb, whether it failed or not."""
        ...

    def drop(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close a connection whose state is unknown."""
        ...

    def leave(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close the connections to a server in whose place there may be another one."""
        ...

    def close(self) -> None:
        """Close the connections that are ours."""
        ...


class Own:
    """Connections of our own, opened when needed, and kept."""

    def __init__(self, target: Target) -> None:
        """Start without connections."""
        self._target = target
        self._idle: deque[PostgresLine[Connection[Any]]] = deque()
        self._era = 0
        self._born = generation()

    def __del__(self) -> None:
        """Close the connections, but not in a forked child, which has inherited them."""
        if self._born == generation():
            for line in self._idle:
                line.connection.pgconn.finish()

    def take(self) -> PostgresLine[Connection[Any]]:
        """Return the connection that was used last, or a new one."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                break
            if line.hears is not None and not line.hears(0):
                return line
            line.connection.close()
        era, target = self._era, self._target
        try:
            connection = Connection.connect(target.conninfo, **target.options)
        except psycopg.Error as error:
            raise explain_connect(error, target.where) from error
        return PostgresLine(connection, era, hearing(connection))

    def give(self, line: PostgresLine[Connection[Any]]) -> None:
        """Keep the connection, unless it is broken or the store was closed meanwhile."""
        if line.era != self._era or line.connection.pgconn.status == _BAD:
            line.connection.close()
            return
        line.since = monotonic()
        self._idle.append(line)
        if len(self._idle) > _KEPT:
            self._close_the_oldest(line.since - _IDLE)

    def drop(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close the connection."""
        line.connection.close()

    def leave(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close all connections: the idle ones lead to the same server, and would fail in turn."""
        line.connection.close()
        self.close()

    def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._era += 1
        idle, self._idle = self._idle, deque()
        for line in idle:
            line.connection.close()

    def _close_the_oldest(self, idle_since: float) -> None:
        """Close one connection if it was idle for long. More would delay the caller."""
        with suppress(IndexError):  # others take and give connections meanwhile
            oldest = self._idle.popleft()
            if oldest.since < idle_since:
                oldest.connection.close()
            else:
                self._idle.appendleft(oldest)


class Pooled:
    """Connections of the caller's pool, with the limits and time-outs of that pool."""

    def __init__(self, target: Target) -> None:
        """Use the pool, which need not be open yet."""
        self._target = target
        self._pool = target.given
        self._lines: dict[Connection[Any], PostgresLine[Any]] = {}

    def take(self) -> PostgresLine[Connection[Any]]:
        """Return a connection that the server has not closed."""
        try:
            connection: Connection[Any] = self._pool.getconn()
            while stale(connection):
                connection.close()
                self._pool.putconn(connection)
                connection = self._pool.getconn()
        except psycopg.Error as error:
            raise explain_connect(error, self._target.where) from error
        line = self._lines.get(connection)
        if line is None:
            known = list(self._lines.items())  # at once: other threads take connections meanwhile
            self._lines = {other: line for other, line in known if not other.closed}
            line = self._lines[connection] = PostgresLine(connection)
        return line

    def give(self, line: PostgresLine[Connection[Any]]) -> None:
        """Give the connection back. The pool replaces it if it is broken."""
        self._pool.putconn(line.connection)

    def drop(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close the connection unless it is idle. The pool replaces it."""
        close_unless_idle(line.connection.pgconn)

    def leave(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close the connection. The pool replaces it."""
        line.connection.close()

    def close(self) -> None:
        """Do nothing: the caller closes the pool."""


class Borrowed:
    """The caller's connection, which the caller uses too."""

    def __init__(self, target: Target) -> None:
        """Keep the connection. Nothing is sent yet."""
        self._target = target
        self._line: PostgresLine[Connection[Any]] = PostgresLine(target.given)

    def take(self) -> PostgresLine[Connection[Any]]:
        """Return the connection. Raise ConfigurationError if it is in a transaction."""
        connection = self._line.connection
        if connection.closed:
            error = psycopg.OperationalError("the connection is closed")
            raise explain_connect(error, self._target.where)
        refuse_transaction(connection.pgconn)
        return self._line

    def give(self, line: PostgresLine[Connection[Any]]) -> None:
        """Do nothing: the connection is the caller's."""

    def drop(self, line: PostgresLine[Connection[Any]]) -> None:
        """Close the connection unless it is idle: no cancel request may be sent on it."""
        close_unless_idle(line.connection.pgconn)

    def leave(self, line: PostgresLine[Connection[Any]]) -> None:
        """Do nothing: the connection is the caller's, and the only one."""

    def close(self) -> None:
        """Do nothing: the caller closes it."""


def lender(target: Target) -> Lender:
    """Return the lender for what the caller passed."""
    if target.given is None:
        return Own(target)
    check_colour(target.given, Connection)
    if isinstance(target.given, SharedEngine):
        from oncekey.stores.postgres.engine import EngineLender

        return EngineLender(target)
    return Borrowed(target) if isinstance(target.given, Connection) else Pooled(target)


# Run statements on a lent connection, and migrate the database first.


_MIGRATING: Final = 60.0
"""The time-out in seconds of a step of a migration, which may wait for another migration."""


class Link:
    """Run statements, for any number of threads."""

    def __init__(self, target: Target) -> None:
        """Start without connections."""
        self._target = target
        self._lender = lender(target)
        self._room = Gate("PostgreSQL", target.patience, target.size, target.lock)
        self._migrating = Gate("PostgreSQL", target.patience)
        self._ready = False

    def run(self, statement: Statement, values: Values) -> list[bytes]:
        """Run one prepared statement in a transaction of its own. Return its column.

        Raise StoreError or ConfigurationError if that fails.
        """
        with self._room:
            line = self._lender.take()
            try:
                if not self._ready:
                    with self._migrating:
                        self._prepare(line)
                return self._ask(line, statement, values)
            except psycopg.Error as error:
                if schema_is_gone(error):
                    self._ready = False
                failure = explain(error, self._target.where, lost=line.connection.closed)
                if elsewhere(error):
                    self._lender.leave(line)
                raise failure from error
            except BaseException:  # interrupted: the state of the connection is unknown
                self._lender.drop(line)
                raise
            finally:
                self._lender.give(line)

    def close(self) -> None:
        """Close our connections, those in use when they are given back."""
        self._lender.close()

    def _ask(
        self, line: PostgresLine[Connection[Any]], statement: Statement, values: Values
    ) -> list[bytes]:
        """Run the statement. If it lost against another one, try it a few times more."""
        for longest in PAUSES:
            try:
                return ask(line, statement, values, self._target.timeout)
            except psycopg.Error as error:
                pause(pause_after(error, longest))
        return ask(line, statement, values, self._target.timeout)

    def _prepare(self, line: PostgresLine[Connection[Any]]) -> None:
        """Migrate the database if needed. On failure, the verb was not sent and did not happen."""
        where = self._target.where
        schema.check_server(line.connection.pgconn.server_version, where)
        try:
            if script := self._script(line):
                self._migrate(line, script)
        except psycopg.Error as error:
            failure = (explain_connect if line.connection.closed else explain)(error, where)
            if elsewhere(error):
                self._lender.leave(line)
            raise failure from error
        self._ready = True

    def _migrate(self, line: PostgresLine[Connection[Any]], script: bytes) -> None:
        """Migrate. If that fails, another process may have done it meanwhile."""
        try:
            self._say(line, script, _MIGRATING)
        except psycopg.Error:
            if line.connection.closed or self._script(line):
                raise

    def _script(self, line: PostgresLine[Connection[Any]]) -> bytes:
        """Return what brings the schema up to date, or nothing if it is."""
        seconds = self._target.timeout
        found = self._say(line, schema.FIND, seconds) == schema.FOUND
        read = self._say(line, schema.READ, seconds) if found else []
        return schema.script(read, schema.migrations())

    def _say(
        self, line: PostgresLine[Connection[Any]], script: bytes, seconds: float
    ) -> list[bytes]:
        return wait(line.connection, say(line, script, seconds))
