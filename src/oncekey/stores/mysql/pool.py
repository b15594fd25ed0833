"""The connections of the store, and how statements run on them.

`engine_async` has those of an engine of SQLAlchemy.

A caller that needs a new connection opens it, so that it learns at once what is wrong with the
server. There is no background thread or task that a fork, or the end of an event loop, could leave
behind.
"""

# Generated from pool_async.py by "make generate": do not edit.

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from oncekey.compat import pause
from oncekey.errors import StoreError
from oncekey.stores.connections import Gate
from oncekey.stores.mysql import schema
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.drivers import (
    FAILURES,
    MySQLLine,
    ask,
    close,
    connect,
    is_stale,
)
from oncekey.stores.mysql.errors import (
    PAUSES,
    breaks_off,
    check_idle,
    explain,
    explain_connect,
    explain_preparing,
    pause_after,
    schema_is_gone,
    too_large,
)

if TYPE_CHECKING:
    from oncekey.stores.mysql.drivers import Connection
    from oncekey.stores.mysql.rows import Row

logger = logging.getLogger("oncekey")

_KEPT: Final = 2
_IDLE: Final = 60.0
"""Two unused connections stay open for good, more of them only for 60 seconds."""
_MIGRATING: Final = 60
"""The time-out in seconds of a step of a migration, which may wait for another migration."""


class Lender(Protocol):
    """Lend a connection to one verb at a time."""

    def take(self) -> MySQLLine[Connection]:
        """Return a connection that is idle, and that the server has not closed."""
        ...

    def give(self, line: MySQLLine[Connection]) -> None:
        """Give the connection back after the verb. Close it if it is broken."""
        ...

    def close(self) -> None:
        """Close the connections that are ours."""
        ...


class MySQLOwn:
    """Connections of our own, opened when needed, and kept."""

    def __init__(self, target: MySQLTarget) -> None:
        """Start without connections."""
        self._target = target
        self._idle: deque[MySQLLine[Connection]] = deque()
        self._era = 0

    def take(self) -> MySQLLine[Connection]:
        """Return the connection that was used last, or a new one."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                break
            if not is_stale(line.connection):
                return line
            close(line.connection)
        era, target = self._era, self._target
        try:
            return MySQLLine(connect(target, target.timeout), era)
        except FAILURES as error:
            raise explain_connect(error, target.where) from error

    def give(self, line: MySQLLine[Connection]) -> None:
        """Keep the connection, unless it is broken or the store was closed meanwhile."""
        if line.broken or line.era != self._era:
            close(line.connection)
            return
        line.since = monotonic()
        self._idle.append(line)
        if len(self._idle) > _KEPT and self._idle[0].since < line.since - _IDLE:
            close(self._idle.popleft().connection)

    def close(self) -> None:
        """Close all connections, those in use when they are given back."""
        self._era += 1
        idle, self._idle = self._idle, deque()
        for line in idle:
            close(line.connection)


def lender(target: MySQLTarget) -> Lender:
    """Return the lender for what the caller passed."""
    if target.given is None:
        return MySQLOwn(target)
    from oncekey.stores.mysql.engine import MySQLEngine

    return MySQLEngine(target)


class MySQLLink:
    """Run statements, for any number of threads."""

    def __init__(self, target: MySQLTarget) -> None:
        """Start without connections."""
        self._target = target
        self._lender = lender(target)
        self._room = Gate("the MySQL server", target.patience, target.size)
        self._migrating = Gate("the MySQL server", target.patience)
        self._ready = False

    def run(self, statement: str, smaller: Callable[[], str] | None = None) -> list[Row]:
        """Run one statement. Return its rows. Raise StoreError or ConfigurationError.

        `smaller` returns what to run instead of a statement that is too large for the server.
        """
        with self._room:
            line = self._take()
            try:
                if len(statement) > line.largest:
                    statement = self._instead(statement, line.largest, smaller)
                return self._ask(line, line.settings + statement)
            except FAILURES as error:
                check_idle(error)
                if schema_is_gone(error):
                    self._ready = False
                line.broken = breaks_off(error) or is_stale(line.connection)
                raise explain(error, self._target.where) from error
            except StoreError:  # it was not sent
                raise
            except BaseException:  # interrupted: the state of the connection is unknown
                line.broken = True
                raise
            finally:
                self._lender.give(line)

    def _instead(self, large: str, largest: int, smaller: Callable[[], str] | None) -> str:
        """Return a statement that the server reads. Raise StoreError if there is none."""
        error = too_large(len(large), largest, self._target.where)
        statement = smaller() if smaller is not None else large
        if len(statement) > largest:
            raise error
        logger.warning("a result is not kept: %s", error)
        return statement

    def close(self) -> None:
        """Close our connections, those in use when they are given back."""
        self._lender.close()

    def _take(self) -> MySQLLine[Connection]:
        """Return a connection whose server was checked. Migrate the database first.

        On failure, the verb was not sent and did not happen.
        """
        while True:
            line = self._lender.take()
            if line.largest and self._ready:
                return line
            try:
                if self._prepare(line):
                    return line
            except FAILURES as error:
                line.broken = True
                self._lender.give(line)
                check_idle(error)
                raise explain_preparing(error, self._target.where) from error
            except BaseException:
                line.broken = True
                self._lender.give(line)
                raise
            line.broken = True  # closing it gives the lock of the migration back
            self._lender.give(line)

    def _ask(self, line: MySQLLine[Connection], statement: str) -> list[Row]:
        """Run the statement. If it lost to another one, try it a few times more."""
        for longest in PAUSES:
            try:
                return ask(line.connection, statement, self._target.timeout)
            except FAILURES as error:
                pause(pause_after(error, longest))
        return ask(line.connection, statement, self._target.timeout)

    def _prepare(self, line: MySQLLine[Connection]) -> bool:
        """Check the server that this connection has reached, and migrate the database if needed.

        Return whether the connection can be used: not the one that has migrated.
        """
        where, seconds = self._target.where, self._target.timeout
        if not line.largest:
            (server,) = ask(line.connection, schema.SERVER, seconds)
            schema.check_server(server, where, lent=bool(line.settings))
            line.largest = schema.largest_statement(server) - len(line.settings)
        if self._ready:
            return True
        with self._migrating:
            there = not self._missing(line)
            if not there:
                self._migrate(line)
            self._ready = True
        return there

    def _missing(self, line: MySQLLine[Connection]) -> tuple[tuple[str, ...], ...]:
        """Return the steps that bring the schema up to date."""
        connection, seconds = line.connection, self._target.timeout
        tables = ask(connection, line.settings + schema.TABLES, seconds)
        there = schema.check_tables(tables, self._target.where)
        read = ask(connection, schema.READ, seconds) if there else ()
        ask(connection, "ROLLBACK", seconds)  # one that was lent does not commit itself
        return schema.missing(read)

    def _migrate(self, line: MySQLLine[Connection]) -> None:
        """Migrate with longer time-outs, one process at a time."""
        lock = schema.LOCK.format(seconds=_MIGRATING // 2)
        for statement in (*schema.SESSION, lock):
            ask(line.connection, statement, _MIGRATING)
        for step in self._missing(line):
            for statement in step:
                ask(line.connection, statement, _MIGRATING)
