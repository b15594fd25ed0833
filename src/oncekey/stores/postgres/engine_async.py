"""The connections of an engine of SQLAlchemy, which the sessions of the application use too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import ConnStatus, TransactionStatus

from oncekey.errors import ConfigurationError
from oncekey.stores.engine_async import AsyncLoans
from oncekey.stores.postgres.address import close_unless_idle
from oncekey.stores.postgres.connections import stale
from oncekey.stores.postgres.errors import explain_connect
from oncekey.stores.postgres.protocol import PostgresLine

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection

    from oncekey.stores.postgres.address import Target


_BAD: Final = ConnStatus.BAD
_PLACE: Final = "oncekey"
"""Where the pool keeps what is known about a session, for as long as that lives."""


class AsyncEngineLender:
    """Connections that the pool of the engine lends, each to one verb, between its other users."""

    def __init__(self, target: Target) -> None:
        """Use the engine. Nothing is opened yet."""
        self._pool = AsyncLoans(target.given, psycopg.Error, explain_connect)
        self._loans: dict[PostgresLine[AsyncConnection[Any]], PoolProxiedConnection] = {}

    async def take(self) -> PostgresLine[AsyncConnection[Any]]:
        """Return a connection that is idle, and that the server has not closed."""
        while True:
            loan = await self._pool.take()
            connection: Any = loan.driver_connection
            if not stale(connection):
                break
            await self._pool.give(loan, broken=True)
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:
            await self._pool.give(loan)
            msg = (
                "the engine lent a connection that is inside a transaction, where a claim protects "
                "nothing until it is committed; let handlers of its events commit what they begin, "
                "and leave pool_reset_on_return as it is"
            )
            raise ConfigurationError(msg)
        line = loan.info.get(_PLACE)
        if line is None:
            line = loan.info[_PLACE] = PostgresLine(connection)
        self._loans[line] = loan
        known: PostgresLine[AsyncConnection[Any]] = line
        return known

    async def give(self, line: PostgresLine[AsyncConnection[Any]]) -> None:
        """Give the connection back. The pool replaces it if it is broken."""
        loan = self._loans.pop(line)
        await self._pool.give(loan, broken=line.connection.pgconn.status == _BAD)

    async def drop(self, line: PostgresLine[AsyncConnection[Any]]) -> None:
        """Close the connection unless it is idle. The pool replaces it."""
        close_unless_idle(line.connection.pgconn)

    async def leave(self, line: PostgresLine[AsyncConnection[Any]]) -> None:
        """Close the connection. The pool replaces it."""
        await line.connection.close()

    async def close(self) -> None:
        """Do nothing: the application disposes of its engine."""
