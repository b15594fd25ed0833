"""The driver asyncmy."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from asyncmy.cursors import Cursor

from oncekey.messages.drivers.base_async import AsyncOneByOne
from oncekey.messages.drivers.detection import inside_mysql, pyformat
from oncekey.messages.statements import MYSQL, RELEASE, ROLL_BACK, SAVEPOINT, Values

_names: Final = count()
"""MySQL drops a savepoint when another one gets its name, so that each block has its own."""


class AsyncAsyncmy(AsyncOneByOne):
    """A Connection of asyncmy."""

    dialect = MYSQL

    def __init__(self, connection: Any) -> None:
        """Take the connection."""
        self._connection = connection
        self._name = f"_{next(_names)}"
        self._released = False

    def inside(self) -> bool:
        """Return whether BEGIN was sent, or the connection is without autocommit."""
        return inside_mysql(self._connection)

    async def begin(self) -> None:
        """Do nothing: a connection that is inside has begun, or begins with the next statement."""

    async def savepoint(self) -> None:
        """Set the savepoint."""
        await self._say(f"{SAVEPOINT}{self._name}")

    async def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows, one for each changed row if it has none."""
        found: list[Any] = []
        async with self._connection.cursor(Cursor) as cursor:
            for step in MYSQL.steps(statement):
                await cursor.execute(pyformat(step), values or None)
                if not cursor.description:
                    found = MYSQL.rows(cursor.rowcount)
                elif found := [*await cursor.fetchall()]:
                    break
        return found

    async def release(self) -> None:
        """Release the savepoint."""
        await self._say(f"{RELEASE}{self._name}")
        self._released = True

    async def roll_back(self) -> None:
        """Roll back to the savepoint and release it.

        Without the savepoint roll back the transaction, or a part of the block would be kept.
        """
        if self._released:
            await self._connection.rollback()
            return
        await self._say(f"{ROLL_BACK}{self._name}")
        await self._say(f"{RELEASE}{self._name}")

    async def _say(self, statement: str) -> None:
        async with self._connection.cursor(Cursor) as cursor:
            await cursor.execute(statement)
