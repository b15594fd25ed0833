"""Batches: claims and settles of the tasks of one event loop share a statement and a commit.

Their values are sent as arrays in PostgreSQL's binary format.
"""

from __future__ import annotations

import asyncio
from collections import deque
from copy import copy
from struct import Struct
from typing import Final

from oncekey.compat import running_loop
from oncekey.errors import OncekeyError, StoreError
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.pool_async import AsyncLink
from oncekey.stores.postgres.protocol import Statement, Values

_HEAD: Final = Struct(">5i")
_LENGTH: Final = Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_KINDS: Final = {"text": 25, "bigint": 20, "boolean": 16, "bytea": 17}
_SHORT: Final = tuple(_LENGTH.pack(length) for length in range(256))
"""The encoded form of most lengths."""


def array(kind: str, values: tuple[bytes | None, ...]) -> bytes:
    """Encode an array of one dimension."""
    first, count = values[0], len(values)
    head = _HEAD.pack(1, None in values, _KINDS[kind], count, 1)
    if values.count(first) == count:  # in most columns all values are the same
        return head + _element(first) * count
    return head + b"".join([_element(value) for value in values])


def _element(value: bytes | None) -> bytes:
    if value is None:
        return _NULL
    length = len(value)
    return (_SHORT[length] if length < len(_SHORT) else _LENGTH.pack(length)) + value


# A task that finds no statement under way runs its own at once, unless the one before was a batch:
# then the tasks of one turn of the loop form a batch. Tasks that come meanwhile form the next
# batch. It starts when the statement is answered, or when that takes longer than usual: the row of
# one task may be locked for seconds, and the others shall not wait for it.
#
# If another connection has locked a row of a batch, or if anything goes wrong, each task runs its
# own statement.


LARGEST: Final = 128
"""The largest number of tasks that share one statement."""
LARGE: Final = 16384
"""The size in bytes from which on a request does not share a statement."""

USUAL: Final = 0.05
"""The time in seconds after which the next batch starts on another connection."""

Asked = tuple[Values, "asyncio.Future[bytes | None]"]
"""The values of one task, and the future for its row. None makes the task run its own statement."""


class AsyncCrowd:
    """Run statements, for any number of tasks of one loop."""

    def __init__(self, target: Target) -> None:
        """Start without connections. Without `fast` there are no batches."""
        self._link = AsyncLink(target)
        self._crowds = {
            alone.name: _Crowd(self._link, alone, together)
            for alone, together in (sql.CROWDS if target.fast else ())
        }

    async def run(self, statement: Statement, values: Values) -> list[bytes]:
        """Run one prepared statement in a transaction of its own. Return its column."""
        crowd = self._crowds.get(statement.name)
        if crowd is None or len(b"".join(filter(None, values))) > LARGE:
            return await self._link.run(statement, values)
        return await crowd.run(values)

    async def close(self) -> None:
        """Close our connections, those in use when they are given back."""
        await self._link.close()


class _Crowd:
    """The tasks that want to run one statement."""

    def __init__(self, link: AsyncLink, alone: Statement, together: Statement) -> None:
        self._link = link
        self._alone = alone
        self._together = together
        self._waiting: deque[Asked] = deque()
        self._turn: asyncio.Handle | None = None
        """What starts the next batch, or None if nothing is under way."""
        self._crowded = False
        self._batches: set[asyncio.Task[None]] = set()

    async def run(self, values: Values) -> list[bytes]:
        loop = running_loop()
        if self._turn is None and not self._crowded:
            turn = self._turn = loop.call_later(USUAL, self._next)
            try:
                return await self._link.run(self._alone, values)
            finally:
                self._end(turn)
        answer: asyncio.Future[bytes | None] = loop.create_future()
        self._waiting.append((values, answer))
        if self._turn is None:
            self._turn = loop.call_soon(self._next)
        row = await answer
        return await self._link.run(self._alone, values) if row is None else [row]

    def _end(self, turn: asyncio.Handle) -> None:
        """Start the next batch, unless it was started because this statement took long."""
        turn.cancel()
        if self._turn is turn:
            self._next()

    def _next(self) -> None:
        """Start the next batch with the tasks that have come meanwhile and still wait."""
        batch: dict[tuple[bytes | None, ...], Asked] = {}
        later: list[Asked] = []
        while self._waiting and len(batch) < LARGEST:
            asked = self._waiting.popleft()
            if not asked[1].done() and batch.setdefault(tuple(asked[0][:2]), asked) is not asked:
                later.append(asked)  # a key may be only once in a statement
        self._waiting.extendleft(reversed(later))
        self._turn = None
        if batch:
            self._crowded = len(batch) > 1
            together = [batch[place] for place in sorted(batch)]
            turn = self._turn = running_loop().call_later(USUAL, self._next)
            task = asyncio.create_task(self._serve(together, turn))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _serve(self, batch: list[Asked], turn: asyncio.Handle) -> None:
        """Run the batch. Give each task its row, or its error, or None to run its own statement."""
        rows: list[bytes] = [b""]
        try:
            rows = await self._ask(batch)
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
            self._end(turn)
        if len(rows) == 1:  # one row is the answer for all
            rows *= len(batch)
        for (_, answer), row in zip(batch, rows, strict=True):
            if not answer.done():
                answer.set_result(row or None)

    async def _ask(self, batch: list[Asked]) -> list[bytes]:
        if len(batch) == 1:
            return await self._link.run(self._alone, batch[0][0])
        columns = zip(*(values for values, _ in batch), strict=True)
        kinds = self._together.kinds
        arrays = [array(kind, column) for kind, column in zip(kinds, columns, strict=True)]
        return await self._link.run(self._together, arrays)


def _fail(batch: list[Asked], error: OncekeyError) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(copy(error))  # a copy for each task that raises it
