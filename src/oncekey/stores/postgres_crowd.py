"""Claims and settles of the tasks of one event loop, which share a statement and a commit.

Whoever finds nobody asking asks alone, and at once. Those who come meanwhile make the next crowd.
A row that somebody else holds, and everything that goes wrong, sends each of them to ask alone:
so nobody waits for a stranger longer than a batch takes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from copy import copy
from struct import Struct
from typing import Final

from oncekey.errors import OncekeyError, StoreError
from oncekey.stores import postgres_sql as sql
from oncekey.stores.postgres_link_async import AsyncLink
from oncekey.stores.postgres_rows import fields
from oncekey.stores.postgres_target import Target
from oncekey.stores.postgres_wire import Statement, Values

LARGEST: Final = 128
"""How many share one statement."""
LARGE: Final = 16384
"""Bytes from which on a value does not travel with others."""

_ARRAY: Final = Struct(">5i")
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_KINDS: Final = {"text": 25, "bigint": 20, "boolean": 16, "bytea": 17}

Asked = tuple[Values, "asyncio.Future[bytes | None]"]
"""The values of one asker, and where its row goes; None sends it to ask alone."""


class AsyncCrowd:
    """A way to run statements, from any number of tasks of one loop."""

    def __init__(self, target: Target) -> None:
        """Nothing is opened before the first statement."""
        self._link = AsyncLink(target)
        self._crowds = {
            alone.name: _Crowd(self._link, alone, together) for alone, together in sql.CROWDS
        }

    async def run(self, statement: Statement, values: Values) -> list[bytes]:
        """What one statement answers, which is prepared and a transaction of its own."""
        crowd = self._crowds.get(statement.name)
        if crowd is None or sum(len(value) for value in values if value) > LARGE:
            return await self._link.run(statement, values)
        return await crowd.run(values)

    async def close(self) -> None:
        """The connections are closed, those in use when they come back, but no caller's."""
        await self._link.close()


class _Crowd:
    """Those who ask one statement."""

    def __init__(self, link: AsyncLink, alone: Statement, together: Statement) -> None:
        self._link = link
        self._alone = alone
        self._together = together
        self._waiting: deque[Asked] = deque()
        self._busy = False
        self._batch: asyncio.Task[None] | None = None

    async def run(self, values: Values) -> list[bytes]:
        if self._busy:
            answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
            self._waiting.append((values, answer))
            row = await answer
            return await self._link.run(self._alone, values) if row is None else [row]
        self._busy = True
        try:
            return await self._link.run(self._alone, values)
        finally:
            self._next()

    def _next(self) -> None:
        """Those who came meanwhile are next, if they still wait."""
        batch: dict[tuple[bytes | None, ...], Asked] = {}
        later: list[Asked] = []
        while self._waiting and len(batch) < LARGEST:
            asked = self._waiting.popleft()
            if not asked[1].done() and batch.setdefault(tuple(asked[0][:2]), asked) is not asked:
                later.append(asked)  # no key twice in one statement
        self._waiting.extendleft(reversed(later))
        self._busy = bool(batch)
        if batch:
            together = [batch[place] for place in sorted(batch)]
            self._batch = asyncio.create_task(self._serve(together))

    async def _serve(self, batch: list[Asked]) -> None:
        """Each has its row, or is sent to ask alone, or is told what went wrong."""
        rows: list[bytes | None] = [None] * len(batch)
        try:
            rows = [row if _told(row) else None for row in await self._ask(batch)]
        except StoreError as error:
            if error.happened is not False:
                _fail(batch, error)
        except OncekeyError as error:
            _fail(batch, error)
        except BaseException:
            msg = "nobody waited for the answer of PostgreSQL"
            _fail(batch, StoreError(msg, happened=None))
            raise
        finally:
            self._next()
        for (_, answer), row in zip(batch, rows, strict=True):
            if not answer.done():
                answer.set_result(row)

    async def _ask(self, batch: list[Asked]) -> list[bytes]:
        if len(batch) == 1:
            return await self._link.run(self._alone, batch[0][0])
        columns = zip(*(values for values, _ in batch), strict=True)
        kinds = self._together.kinds
        arrays = [array(kind, column) for kind, column in zip(kinds, columns, strict=True)]
        return await self._link.run(self._together, arrays)


def array(kind: str, values: Sequence[bytes | None]) -> bytes:
    """An array in PostgreSQL's binary form."""
    parts = [_ARRAY.pack(1, None in values, _KINDS[kind], len(values), 1)]
    for value in values:
        parts += (_NULL,) if value is None else (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def _told(row: bytes) -> bool:
    """Whether the row says something: a verdict is a word, an answer the first field of a row."""
    return bool(row) and (not row.startswith(b"\x00") or fields(row, 1) != [None])


def _fail(batch: list[Asked], error: OncekeyError) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(copy(error))  # one for each who raises it
