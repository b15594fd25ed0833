"""The driver for asyncpg, which has coroutines only."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

from oncekey.messages.drivers.base_async import AsyncOneByOne
from oncekey.messages.statements import POSTGRES, RELEASE, ROLL_BACK, SAVEPOINT, Values

_PARAMETER: Final = re.compile(r"(?<![:\w']):(\w+)")


class _Numbered(NamedTuple):
    """A statement with numbered parameters, and their names in that order."""

    text: str
    parameters: tuple[str, ...]
    plain: bool
    """Whether it is an INSERT without RETURNING, which has no rows."""


@cache
def _numbered(statement: str) -> _Numbered:
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    text = _PARAMETER.sub(number, statement)
    plain = text.lstrip().startswith("INSERT") and "RETURNING" not in text
    return _Numbered(text, tuple(names), plain)


class AsyncAsyncpg(AsyncOneByOne):
    """A Connection of asyncpg, or what its pool lends."""

    dialect = POSTGRES

    def __init__(self, connection: Any) -> None:
        """Take the connection."""
        self._connection = connection

    def inside(self) -> bool:
        """Return whether BEGIN was sent, by `connection.transaction()` or by hand."""
        return bool(self._connection.is_in_transaction())

    def prepares(self) -> bool:
        """Return True, which asyncpg does."""
        return True

    async def begin(self) -> None:
        """Do nothing: a connection that is inside has begun."""

    async def savepoint(self) -> None:
        """Set the savepoint."""
        await self._connection.execute(SAVEPOINT)

    async def run(self, statement: str, values: Values) -> list[Any]:
        """Run the statement. Return its rows."""
        text, parameters, plain = _numbered(statement)
        given = [values[name] for name in parameters]
        if plain:
            told = await self._connection.execute(text, *given)
            return self.dialect.rows(int(told.rpartition(" ")[2]))
        return [tuple(row) for row in await self._connection.fetch(text, *given)]

    async def release(self) -> None:
        """Release the savepoint."""
        await self._connection.execute(RELEASE)

    async def roll_back(self) -> None:
        """Roll back to the savepoint and release it, unless the transaction itself is over."""
        if self._connection.is_in_transaction():
            await self._connection.execute(f"{ROLL_BACK}; {RELEASE}")
