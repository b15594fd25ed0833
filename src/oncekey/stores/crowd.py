"""Crowds: requests of the tasks of one event loop share a statement and a commit.

A task that finds no statement under way runs its own at once, unless the one before was a batch:
then the tasks of one turn of the loop form a batch. Tasks that come meanwhile form the next batch.
It starts when the statement is answered, or when that takes longer than usual: the row of one task
may be locked for seconds, and the others shall not wait for it. With several lanes, many tasks form
several batches, so that the server works on one while this process works on another.

If another connection has locked a row of a batch, or if anything goes wrong, each task runs its own
statement.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Final, Generic, TypeVar

from oncekey.compat import running_loop
from oncekey.errors import OncekeyError, StoreError

Q = TypeVar("Q")
"""What a task asks."""
R = TypeVar("R")
"""A row of an answer."""

LARGEST: Final = 128
"""The largest number of tasks that share one statement."""
LARGE: Final = 16384
"""The size in bytes from which on a request does not share a statement."""

FEW: Final = 16
"""The number of waiting tasks from which on another lane is used."""
MANY: Final = 48
"""The number of waiting tasks from which on the free lanes share them."""

USUAL: Final = 0.05
"""The time in seconds after which the next batch starts on another connection."""

Asked = tuple[Q, "asyncio.Future[R | None]"]
"""The request of one task, and the future for its row."""


class Crowd(Generic[Q, R]):
    """The tasks of one loop that want to run the same kind of statement."""

    def __init__(
        self,
        server: str,
        record_of: Callable[[Q], tuple[object, ...]],
        alone: Callable[[Q], Awaitable[list[R]]],
        together: Callable[[list[Q]], Awaitable[list[R]]],
        lanes: int = 1,
    ) -> None:
        """Start without tasks.

        `record_of` returns the scope and the key of a request. `alone` runs a request, and returns
        its rows. `together` runs several, sorted by record, in one statement. It returns one row
        for each, or one for all. An empty row makes a task run its own statement. At most `lanes`
        batches are under way at once, besides those that take longer than usual.
        """
        self._server = server
        self._record_of = record_of
        self._alone = alone
        self._together = together
        self._lanes = lanes
        self._waiting: deque[Asked[Q, R]] = deque()
        self._turns: set[asyncio.Handle] = set()
        """One for each statement under way: it says when that takes longer than usual."""
        self._soon: asyncio.Handle | None = None
        """What starts the next batch in the next turn of the loop."""
        self._crowded = False
        self._batches: set[asyncio.Task[None]] = set()

    async def run(self, ask: Q) -> list[R]:
        """Run one request, alone or with others. Return its rows."""
        if not (self._turns or self._soon or self._crowded):
            turn = self._begin()
            try:
                return await self._alone(ask)
            finally:
                self._end(turn)
        loop = running_loop()
        answer: asyncio.Future[R | None] = loop.create_future()
        self._waiting.append((ask, answer))
        if self._soon is None and self._has_room():
            self._soon = loop.call_soon(self._next)
        row = await answer
        return await self._alone(ask) if row is None else [row]

    def _has_room(self) -> bool:
        """Return whether the waiting tasks, if any, may start a batch now."""
        turns = len(self._turns)
        return not turns or (turns < self._lanes and len(self._waiting) >= FEW)

    def _begin(self) -> asyncio.Handle:
        turn: asyncio.TimerHandle = running_loop().call_later(USUAL, lambda: self._end(turn))
        self._turns.add(turn)
        return turn

    def _end(self, turn: asyncio.Handle) -> None:
        """Start the next batch, unless it was started because this statement took long."""
        turn.cancel()
        if turn in self._turns:
            self._turns.remove(turn)
            self._next()

    def _next(self) -> None:
        """Start the next batches with the tasks that have come meanwhile and still wait."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        while self._waiting and self._has_room():
            count, free = len(self._waiting), self._lanes - len(self._turns)
            self._start(-(-count // free) if count >= MANY else count)

    def _start(self, count: int) -> None:
        """Start a batch of at most so many of the waiting tasks."""
        batch: dict[tuple[object, ...], Asked[Q, R]] = {}
        later: list[Asked[Q, R]] = []
        while self._waiting and len(batch) < min(count, LARGEST):
            asked = self._waiting.popleft()
            if asked[1].done():
                continue
            if batch.setdefault(self._record_of(asked[0]), asked) is not asked:
                later.append(asked)  # a key may be only once in a statement
        self._waiting.extendleft(reversed(later))
        if batch:
            self._crowded = len(batch) > 1
            together = [batch[record] for record in sorted(batch)]
            task = asyncio.create_task(self._serve(together, self._begin()))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)

    async def _serve(self, batch: list[Asked[Q, R]], turn: asyncio.Handle) -> None:
        """Run the batch. Give each task its row, or its error, or None to run its own statement."""
        rows: list[R | None] = [None]
        try:
            rows = await self._ask(batch)
        except StoreError as error:
            if error.happened is not False:
                _fail(batch, error)
        except OncekeyError as error:
            _fail(batch, error)
        except BaseException:
            msg = f"nobody waited for the answer of {self._server}"
            _fail(batch, StoreError(msg, happened=None))
            raise
        finally:
            self._end(turn)
        if len(rows) == 1:  # one row is the answer for all
            rows *= len(batch)
        for (_, answer), row in zip(batch, rows, strict=True):
            if not answer.done():
                answer.set_result(row or None)

    async def _ask(self, batch: list[Asked[Q, R]]) -> list[R | None]:
        if len(batch) == 1:
            return [*await self._alone(batch[0][0])]
        return [*await self._together([ask for ask, _ in batch])]


def _fail(batch: list[Asked[Q, R]], error: OncekeyError) -> None:
    for _, answer in batch:
        if not answer.done():
            answer.set_exception(copy(error))  # a copy for each task that raises it
