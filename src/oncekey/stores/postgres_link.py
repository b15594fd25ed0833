"""The connections of one process to PostgreSQL: a few, opened when needed and then kept.

Whoever needs a new connection makes it, so that it hears at once what is wrong with the server
and waits for no one's retries. There is no thread and no task in the background that a fork, or
the end of an event loop, could leave behind.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import Connection
from psycopg.rows import tuple_row

from oncekey.fork import generation
from oncekey.stores import postgres_schema as schema
from oncekey.stores.postgres_errors import explain, explain_connect, schema_is_gone
from oncekey.stores.postgres_places import Gate, Target, stale
from oncekey.stores.postgres_sql import Row, Values


class Link:
    """A way to run statements, from any number of threads."""

    def __init__(self, target: Target) -> None:
        """Nothing is opened before the first statement."""
        self._target = target
        self._room = Gate(target.patience, target.size)
        self._migrating = Gate(target.patience)
        self._ready = False
        self._idle: list[Connection[Any]] = []
        self._closings = 0
        self._born = generation()

    def __del__(self) -> None:
        """Who forgot to close leaves no connection open. A fork's child leaves its parent's."""
        if self._born == generation():
            for connection in self._idle:
                connection.pgconn.finish()

    def run(self, statement: LiteralString, values: Values) -> list[Row]:
        """The rows of one statement that was prepared, in a transaction of its own."""
        with self._room:
            closings = self._closings
            connection = self._take()
            try:
                return self._send(connection, statement, values)
            finally:
                self._give_back(connection, closings)

    def close(self) -> None:
        """The connections are closed, those in use when they come back, but no caller's."""
        self._closings += 1
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send(
        self, connection: Connection[Any], statement: LiteralString, values: Values
    ) -> list[Row]:
        try:
            cursor = connection.cursor(binary=True, row_factory=tuple_row)
            cursor.execute(statement, values, prepare=True)
            rows = cursor.fetchall()
            if not connection.autocommit:  # as a caller's pool may have it
                connection.commit()
        except psycopg.Error as error:
            if schema_is_gone(error):
                self._ready = False
            raise explain(error, self._target.where, lost=connection.closed) from error
        except BaseException:  # cut off: nobody knows what it would answer next
            if self._target.pool is None:
                connection.close()
            raise
        return rows

    def _take(self) -> Connection[Any]:
        """A connection on which nothing was sent yet, to a database that has the schema."""
        connection = self._connected()
        if self._ready:
            return connection
        try:
            with self._migrating:
                self._prepare(connection)
        except BaseException:
            self._give_back(connection, -1)
            raise
        return connection

    def _connected(self) -> Connection[Any]:
        while self._idle:
            connection = self._idle.pop()
            if not stale(connection):
                return connection
            connection.close()
        target = self._target
        try:
            if target.pool is None:
                return Connection.connect(target.conninfo, **target.options)
            callers: Connection[Any] = target.pool.getconn()
            while stale(callers):
                callers.close()
                target.pool.putconn(callers)
                callers = target.pool.getconn()
        except psycopg.Error as error:
            raise explain_connect(error, target.where) from error
        return callers

    def _give_back(self, connection: Connection[Any], closings: int) -> None:
        if self._target.pool is not None:
            self._target.pool.putconn(connection)
        elif closings == self._closings and not connection.closed:
            self._idle.append(connection)
        else:
            connection.close()

    def _prepare(self, connection: Connection[Any]) -> None:
        schema.check_server(connection.info.server_version, self._target.where)
        try:
            with connection.transaction():
                cursor = connection.cursor(row_factory=tuple_row)
                if self._missing(cursor):
                    cursor.execute(schema.LOCK)
                    for script in self._missing(cursor):
                        cursor.execute(script)
            connection.commit()
        except psycopg.Error as error:  # the verb itself was not sent yet
            say = explain_connect if connection.closed else explain
            raise say(error, self._target.where) from error
        self._ready = True

    def _missing(self, cursor: psycopg.Cursor[Any]) -> tuple[bytes, ...]:
        """The migrations that the database has yet to see."""
        cursor.execute(schema.FIND)
        (found,) = cursor.fetchall()
        version, oldest = 0, 0
        if found[0]:
            cursor.execute(schema.READ)
            ((version, oldest),) = cursor.fetchall()
        return schema.missing(version, oldest, schema.migrations())
