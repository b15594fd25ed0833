"""Wait for a record to change with LISTEN, instead of polling.

Each waiter has a connection of its own, so that it takes none from the verbs that it waits for.
"""

from __future__ import annotations

from asyncio import sleep
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection

from oncekey.stores.connections import AsyncGate
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.errors import elsewhere, explain
from oncekey.stores.postgres.pool_async import AsyncOwn
from oncekey.stores.postgres.protocol import (
    PostgresLine,
    Values,
    listen,
    meet,
    perform,
    say,
    wait_async,
)
from oncekey.stores.postgres.rows import to_number

_WAITERS: Final = 8
"""The number of callers that can listen. Further ones sleep for _SOON seconds and ask again."""
_SOON: Final = 0.1
_PER_SECOND: Final = 1_000_000


class AsyncWatch:
    """Wait for changes, for a few tasks of one loop at a time."""

    def __init__(self, target: Target) -> None:
        """Start without connections."""
        self._target = target
        self._lender = AsyncOwn(target)
        self._room = AsyncGate("PostgreSQL", _SOON, _WAITERS)

    async def until_changed(self, scope: str | None, key: str, token: int, seconds: float) -> None:
        """Wait until the record may not be running under this token, or `seconds` are over."""
        if not self._may_listen():
            await sleep(min(seconds, _SOON))
            return
        async with self._room:
            line = await self._lender.take()
            try:
                await self._wait(
                    line, sql.channel(scope, key), sql.of_watch(scope, key, token), seconds
                )
            except psycopg.Error as error:
                failure = explain(error, self._target.where, lost=line.connection.closed)
                if elsewhere(error):
                    await self._lender.leave(line)
                raise failure from error
            except BaseException:  # interrupted: the connection would still listen
                await self._lender.drop(line)
                raise
            finally:
                await self._lender.give(line)

    async def close(self) -> None:
        """Close the connections, those in use when they are given back."""
        await self._lender.close()

    def _may_listen(self) -> bool:
        return self._target.listen and not self._room.full()

    async def _wait(
        self, line: PostgresLine[AsyncConnection[Any]], channel: str, record: Values, seconds: float
    ) -> None:
        """Listen first, then mark the record as watched, so that its end cannot be missed.

        Behind a pooler nobody listens: it may call somebody else.
        """
        connection, patience = line.connection, self._target.timeout
        if line.pooled is None:
            await wait_async(connection, meet(line, patience))
        if line.pooled:
            await sleep(min(seconds, _SOON))
            return
        line.heard.clear()
        connection.pgconn.notify_handler = line.heard.append
        await wait_async(connection, say(line, f"LISTEN {channel}".encode(), patience))
        (left,) = await wait_async(connection, perform(line, sql.WATCH, record, patience))
        until = min(seconds, to_number(left) / _PER_SECOND)
        await wait_async(connection, listen(line, channel.encode(), until), min(until, _SOON))
        await wait_async(connection, say(line, b"UNLISTEN *", patience))
