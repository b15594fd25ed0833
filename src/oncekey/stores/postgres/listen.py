"""Wait for a record to change with LISTEN, instead of polling.

Each waiter has a connection of its own, so that it takes none from the verbs that it waits for.
"""

# Generated from listen_async.py by "make generate": do not edit.

from __future__ import annotations

from time import sleep
from typing import Any, Final

import psycopg
from psycopg import Connection

from oncekey.stores.connections import Gate
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.errors import elsewhere, explain
from oncekey.stores.postgres.pool import Own
from oncekey.stores.postgres.protocol import (
    PostgresLine,
    Values,
    listen,
    meet,
    perform,
    say,
    wait,
)
from oncekey.stores.postgres.rows import to_number

_WAITERS: Final = 8
"""The number of callers that can listen. Further ones sleep for _SOON seconds and ask again."""
_SOON: Final = 0.1
_PER_SECOND: Final = 1_000_000


class Watch:
    """Wait for changes, for a few threads at a time."""

    def __init__(self, target: Target) -> None:
        """Start without connections."""
        self._target = target
        self._lender = Own(target)
        self._room = Gate("PostgreSQL", _SOON, _WAITERS)

    def until_changed(self, scope: str | None, key: str, token: int, seconds: float) -> None:
        """Wait until the record may not be running under this token, or `seconds` are over."""
        if not self._may_listen():
            sleep(min(seconds, _SOON))
            return
        with self._room:
            line = self._lender.take()
            try:
                self._wait(line, sql.channel(scope, key), sql.of_watch(scope, key, token), seconds)
            except psycopg.Error as error:
                failure = explain(error, self._target.where, lost=line.connection.closed)
                if elsewhere(error):
                    self._lender.leave(line)
                raise failure from error
            except BaseException:  # interrupted: the connection would still listen
                self._lender.drop(line)
                raise
            finally:
                self._lender.give(line)

    def close(self) -> None:
        """Close the connections, those in use when they are given back."""
        self._lender.close()

    def _may_listen(self) -> bool:
        return self._target.listen and not self._room.full()

    def _wait(
        self, line: PostgresLine[Connection[Any]], channel: str, record: Values, seconds: float
    ) -> None:
        """Listen first, then mark the record as watched, so that its end cannot be missed.

        Behind a pooler nobody listens: it may call somebody else.
        """
        connection, patience = line.connection, self._target.timeout
        if line.pooled is None:
            wait(connection, meet(line, patience))
        if line.pooled:
            sleep(min(seconds, _SOON))
            return
        line.heard.clear()
        connection.pgconn.notify_handler = line.heard.append
        wait(connection, say(line, f"LISTEN {channel}".encode(), patience))
        (left,) = wait(connection, perform(line, sql.WATCH, record, patience))
        until = min(seconds, to_number(left) / _PER_SECOND)
        wait(connection, listen(line, channel.encode(), until), min(until, _SOON))
        wait(connection, say(line, b"UNLISTEN *", patience))
