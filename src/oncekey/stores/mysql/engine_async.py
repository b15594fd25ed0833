"""The connections of an engine of SQLAlchemy, which the sessions of the application use too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oncekey.stores.engine_async import AsyncLoans
from oncekey.stores.mysql.address import check_colour
from oncekey.stores.mysql.drivers import FAILURES, MySQLLine, is_stale_async
from oncekey.stores.mysql.errors import explain_connect
from oncekey.stores.mysql.schema import LENT

if TYPE_CHECKING:
    from sqlalchemy.pool import PoolProxiedConnection

    from oncekey.stores.mysql.address import MySQLTarget
    from oncekey.stores.mysql.drivers import AsyncConnection


_PLACE: Final = "oncekey"
"""Where the pool keeps what is known about a session, for as long as that lives."""


class AsyncMySQLEngine:
    """Connections that the pool of the engine lends, each to one verb, between its other users."""

    def __init__(self, target: MySQLTarget) -> None:
        """Use the engine. Nothing is opened yet."""
        # async only
        check_colour(target.given, awaits=True)
        if False:  # sync only
            check_colour(target.given, awaits=False)
        self._pool = AsyncLoans(target.given, FAILURES, explain_connect)
        self._loans: dict[MySQLLine[AsyncConnection], PoolProxiedConnection] = {}

    async def take(self) -> MySQLLine[AsyncConnection]:
        """Return a connection that the server has not closed."""
        while True:
            loan = await self._pool.take()
            connection: Any = loan.driver_connection
            if not is_stale_async(connection):
                break
            await self._pool.give(loan, broken=True)
        line = loan.info.get(_PLACE)
        if line is None:
            line = loan.info[_PLACE] = MySQLLine(connection, settings=LENT)
        self._loans[line] = loan
        known: MySQLLine[AsyncConnection] = line
        return known

    async def give(self, line: MySQLLine[AsyncConnection]) -> None:
        """Give the connection back. The pool replaces it if it is broken."""
        await self._pool.give(self._loans.pop(line), broken=line.broken)

    async def close(self) -> None:
        """Do nothing: the application disposes of its engine."""
