"""Batches: claims and settles of the tasks of one event loop share a statement and a commit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from oncekey.core.requests import Claim, Settle
from oncekey.stores.crowd import LARGE, Crowd
from oncekey.stores.mysql import statements as sql
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.pool_async import AsyncMySQLLink

if TYPE_CHECKING:
    from oncekey.stores.mysql.rows import Row

_LANES: Final = 3
"""How many batches of claims, and of settles, are under way at once."""

_ALONE: Row = ()
"""The answer to a task that runs its own statement."""


class AsyncMySQLCrowd:
    """Run statements, for any number of tasks of one loop."""

    def __init__(self, target: MySQLTarget) -> None:
        """Start without connections. Without `fast` there are no batches."""
        self._link = AsyncMySQLLink(target)
        self._claims: Crowd[Claim, Row] | None = None
        self._settles: Crowd[Settle, Row] | None = None
        if target.fast:
            self._claims = Crowd("MySQL", _record_of, self._claim, self._claim_together, _LANES)
            self._settles = Crowd("MySQL", _record_of, self._settle, self._settle_together, _LANES)

    async def run(self, statement: str, smaller: Callable[[], str] | None = None) -> list[Row]:
        """Run one statement. Return its rows."""
        return await self._link.run(statement, smaller)

    async def claim(self, ask: Claim) -> list[Row]:
        """Run a claim, alone or with others. Return its row."""
        if self._claims is None or len(ask.label) + len(ask.reference) >= LARGE:
            return await self._claim(ask)
        return await self._claims.run(ask)

    async def settle(self, ask: Settle) -> list[Row]:
        """Run a settle, alone or with others. Return its row."""
        if self._settles is None or len(ask.result or b"") + len(ask.error or b"") >= LARGE:
            return await self._settle(ask)
        return await self._settles.run(ask)

    async def close(self) -> None:
        """Close our connections, those in use when they are given back."""
        await self._link.close()

    async def _claim(self, ask: Claim) -> list[Row]:
        return await self._link.run(sql.claim(ask))

    async def _claim_together(self, asks: list[Claim]) -> list[Row]:
        rows = await self._link.run(sql.claims(asks))
        if len(rows) == 1 and len(rows[0]) == 1:  # the moment at which all were granted, or null
            return rows if rows[0][0] is not None else [_ALONE]
        answers = {place: answer for place, *answer in rows}
        return [tuple(answers.get(place, _ALONE)) for place in range(1, len(asks) + 1)]

    async def _settle(self, ask: Settle) -> list[Row]:
        return await self._link.run(sql.settle(ask), partial(sql.settle_without, ask))

    async def _settle_together(self, asks: list[Settle]) -> list[Row]:
        rows = await self._link.run(sql.settles(asks))
        ((told,),) = rows
        if told == "done":
            return rows
        settled = set((told or "").split(","))
        return [("done",) if str(place) in settled else _ALONE for place in range(1, len(asks) + 1)]


def _record_of(ask: Claim | Settle) -> tuple[object, ...]:
    return ask.scope or "", ask.key
