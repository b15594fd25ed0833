"""The wires of one event loop: one for what is short, one for what would hold that up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from oncekey.stores.redis_line import Words, pack
from oncekey.stores.redis_lines import WHAT_FOR
from oncekey.stores.wire import Asked, Wire

LARGE: Final = 16384
"""Bytes from which on a command does not travel with the others."""


class Wires:
    """They are opened when there is something to send, and again after they broke."""

    def __init__(self, pool: Any) -> None:  # noqa: ANN401 - generic in redis-py's stubs
        """Connections come out of the pool and go back to it. On the loop only."""
        self._loop = asyncio.get_running_loop()
        self._swift = _Lane(pool)
        self._apart = _Lane(pool)

    def ask(self, words: Words, *, apart: bool) -> asyncio.Future[Any]:
        """The reply to one command, which is sent once; `apart` from those of others."""
        packed = pack(words)
        reply: asyncio.Future[Any] = self._loop.create_future()
        lane = self._apart if apart or len(packed) > LARGE else self._swift
        wire = lane.wire
        if wire is not None and wire.fit:
            wire.ask((packed, reply))
        else:
            lane.ask_soon(((packed, reply),))
        return reply

    async def aclose(self) -> None:
        """The pool has its connections back. The next command opens new ones."""
        await self._swift.aclose()
        await self._apart.aclose()


class _Lane:
    """One wire, or the next one that takes its place."""

    def __init__(self, pool: Any) -> None:  # noqa: ANN401 - as above
        self.wire: Wire | None = None
        self._pool = pool
        self._queue: list[Asked] = []
        self._opening: asyncio.Task[None] | None = None

    def ask_soon(self, asked: Iterable[Asked]) -> None:
        """These are sent as soon as there is a wire, or told why there is none."""
        self._queue += asked
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._is_open)

    async def _open(self) -> None:
        await self._give_back()
        self.wire = Wire(await self._pool.get_connection(*WHAT_FOR), self.ask_soon)

    def _is_open(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        queue, self._queue = self._queue, []
        if opening.cancelled():
            for _, reply in queue:
                reply.cancel()
        elif error := opening.exception():
            for _, reply in queue:
                if not reply.done():
                    reply.set_exception(error)
        else:
            for asked in queue:
                self.wire.ask(asked)  # type: ignore[union-attr]  # it has just been opened

    async def aclose(self) -> None:
        """The wire is given back; what was on it is unknown."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        await self._give_back()

    async def _give_back(self) -> None:
        """The pool has the connection back, without its socket."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
            await wire.connection.disconnect()
            await self._pool.release(wire.connection)
