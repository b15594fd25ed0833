"""The wires of one event loop: one for what is short, one for what would hold that up."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from oncekey.stores.redis_line import Words, pack
from oncekey.stores.redis_lines import WHAT_FOR
from oncekey.stores.wire import NotSentError, Wire

LARGE: Final = 16384
"""Bytes from which on a command does not travel with the others."""


class Wires:
    """They are opened when there is something to send, and again after they broke."""

    def __init__(self, pool: Any) -> None:  # noqa: ANN401 - generic in redis-py's stubs
        """Connections come out of the pool and go back to it."""
        self._swift = _Lane(pool)
        self._apart = _Lane(pool)

    async def ask(self, words: Words, *, apart: bool = False) -> Any:  # noqa: ANN401 - any reply
        """The reply to one command, which is sent once; `apart` from those of others."""
        packed = pack(words)
        lane = self._apart if apart or len(packed) > LARGE else self._swift
        wire = lane.wire
        if wire is None or not wire.fit:
            wire = await lane.opened()
        try:
            return await wire.ask(packed)
        except NotSentError:
            return await (await lane.opened()).ask(packed)

    async def aclose(self) -> None:
        """The pool has its connections back. The next command opens new ones."""
        await self._swift.aclose()
        await self._apart.aclose()


class _Lane:
    """One wire, or the next one that takes its place."""

    def __init__(self, pool: Any) -> None:  # noqa: ANN401 - as above
        self.wire: Wire | None = None
        self._pool = pool
        self._opening: asyncio.Task[Wire] | None = None

    async def opened(self) -> Wire:
        """A wire that is fit; whoever comes meanwhile waits for the same one."""
        if self._opening is None:
            if self.wire is not None and self.wire.fit:
                return self.wire
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._is_open)
        return await asyncio.shield(self._opening)

    async def _open(self) -> Wire:
        await self._give_back()
        self.wire = Wire(await self._pool.get_connection(*WHAT_FOR))
        return self.wire

    def _is_open(self, opening: asyncio.Task[Wire]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # those who wait for it are told; there may be none left

    async def aclose(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        await self._give_back()

    async def _give_back(self) -> None:
        """The pool has the connection back, without its socket."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
            await wire.connection.disconnect(nowait=True)
            await self._pool.release(wire.connection)
