"""One connection that all coroutines of an event loop share: a wire.

What they ask within one turn of the loop leaves in few writes, and the replies come in as few
reads as the system makes of them. The connection is opened by redis-py, with everything that its
settings say; from then on it is spoken to directly.

A caller who goes away leaves the wire as it was: its reply is read and dropped. A wire that
breaks fails what was on it, of which nobody knows whether it happened, and nothing else: what
has not left yet is given back, and leaves on another.

Threads share no connection, so that `connection.py` is other code, and both are written by hand.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from hiredis import PushNotification, Reader
from redis import exceptions as told

from oncekey.stores.redis.connection import WHAT_FOR, Words, pack

MOST_ON_THE_WAY: Final = 512
"""How many commands may wait for their replies on one wire; others queue up behind them."""
ENOUGH: Final = 32
"""How many commands leave before the turn of the loop is over: the server is not to be idle for as
long as a crowd takes to ask, nor the crowd for as long as the server takes to answer all of it."""
_MORE: Final = object()
_READ: Final = 65536
Asked = tuple[bytes, "asyncio.Future[Any]"]
"""A command, and where its reply goes."""
# A server that hangs up says so to the loop, but a command may overtake what it says.
_IDLE: Final = 0.02


class Wire(asyncio.BufferedProtocol):
    """A connection, from the moment that redis-py has made it until it breaks or is let go."""

    def __init__(self, connection: Any, unsent: Callable[[Iterable[Asked]], None]) -> None:
        """The connection is connected, and nobody else uses it.

        `unsent` is told what did not leave before the wire came to its end.
        """
        self.connection = connection
        self._give_back = unsent
        self.fit = True
        """Whether new commands may be sent: it neither broke nor was told to go elsewhere."""
        self._loop = asyncio.get_running_loop()
        self._transport: Any = connection._writer.transport  # noqa: SLF001 - no other way to it
        self._before = self._transport.get_protocol()
        self._patience: float | None = connection.socket_timeout
        self._buffer = memoryview(bytearray(_READ))
        self._reader: Any = Reader(  # whose own types know of no memoryview
            protocolError=told.InvalidResponse,
            replyError=connection._parser.parse_error,  # noqa: SLF001 - the same errors as elsewhere
            notEnoughData=_MORE,
        )
        self._unsent: deque[Asked] = deque()
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._heard_at = self._loop.time()
        self._leaves_soon = False  # whether a flush is on its way
        self._full = False  # whether the system takes no more now
        self._clock: asyncio.TimerHandle | None = None
        self._poll = select.poll()
        self._poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        self._transport.set_protocol(self)

    def ask(self, asked: Asked) -> None:
        """The command is sent in this turn of the loop, and its reply goes where it says."""
        self._unsent.append(asked)
        if not self._leaves_soon:
            self._leaves_soon = True
            self._loop.call_soon(self._leave)
        elif len(self._unsent) >= ENOUGH and not self._silent_for_long():
            self._flush()

    def close(self) -> None:
        """Nothing more is read or written; those who still wait are told."""
        self._break(told.ConnectionError("the connection was closed"))

    # What leaves

    def _leave(self) -> None:
        if not self._waiting and self._silent_for_long() and self._poll.poll(0):
            # The loop comes to what there is to hear in its next turn, and then to this.
            self._loop.call_soon(self._loop.call_soon, self._leave_now)
        else:
            self._leave_now()

    def _leave_now(self) -> None:
        self._leaves_soon = False
        self._flush()

    def _silent_for_long(self) -> bool:
        return self._loop.time() - self._heard_at > _IDLE

    def _flush(self) -> None:
        room = MOST_ON_THE_WAY - len(self._waiting)
        if not self.fit or self._full or room <= 0:
            return
        now = self._loop.time()
        leaving: list[bytes] = []
        while self._unsent and len(leaving) < room:
            packed, reply = self._unsent.popleft()
            if not reply.done():  # whoever has gone away before it left has not asked
                leaving.append(packed)
                self._waiting.append((now, reply))
        if leaving:
            self._transport.write(b"".join(leaving))
            if self._clock is None and self._patience is not None:
                self._clock = self._loop.call_at(now + self._patience, self._look_at_the_clock)

    def pause_writing(self) -> None:
        """The system takes no more now."""
        self._full = True

    def resume_writing(self) -> None:
        """It does again."""
        self._full = False
        self._flush()

    # What comes

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer has its size
        """Where the next bytes go."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come: those whose replies are whole have them."""
        self._heard_at = self._loop.time()
        gets, waiting = self._reader.gets, self._waiting
        try:
            self._reader.feed(self._buffer, 0, nbytes)
            while (reply := gets()) is not _MORE:
                if type(reply) is PushNotification:  # the server wants us elsewhere
                    self.fit = False
                    continue
                _, future = waiting.popleft()
                if future.done():  # nobody waits for it any more
                    continue
                if isinstance(reply, Exception):
                    self.fit = self.fit and not _demoted(reply)
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except (told.InvalidResponse, IndexError) as error:  # not what a Redis server says
            self._break(told.ConnectionError(f"the connection broke: {error}"))
            return
        if not self.fit:
            self._go_elsewhere()
        elif self._unsent and not self._leaves_soon:
            self._flush()

    def eof_received(self) -> None:
        """The server has hung up: nothing more leaves, and the transport closes itself."""
        self.fit = False
        self._hand_over()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._before.connection_lost(exc)  # redis-py waits for this word when it closes
        why = "the server closed the connection" if exc is None else str(exc)
        self._break(told.ConnectionError(f"the connection broke: {why}"))

    # How it ends

    def _look_at_the_clock(self) -> None:
        """One clock for all: the oldest command is the first that can be too late."""
        self._clock = None
        if not self._waiting or self._patience is None:
            return
        late_at = self._waiting[0][0] + self._patience
        if self._loop.time() < late_at:
            self._clock = self._loop.call_at(late_at, self._look_at_the_clock)
        else:
            self._break(told.TimeoutError("no reply in time"))

    def _go_elsewhere(self) -> None:
        """What has not left is sent on another wire; what has is still waited for."""
        self._hand_over()
        if not self._waiting:
            self._transport.close()

    def _break(self, error: Exception) -> None:
        self.fit = False
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        self._hand_over()
        waiting, self._waiting = self._waiting, deque()
        for _, reply in waiting:
            if not reply.done():
                reply.set_exception(type(error)(*error.args))  # each has a traceback of its own
        self._transport.abort()

    def _hand_over(self) -> None:
        unsent, self._unsent = self._unsent, deque()
        if unsent:
            self._give_back(unsent)


def _demoted(error: Exception) -> bool:
    """Whether a primary has become a replica: its successor may have the same address."""
    return isinstance(error, told.ReadOnlyError) or "READONLY" in str(error)


# The wires of one event loop: one for what is short, one for what would hold that up.


LARGE: Final = 16384
"""Bytes from which on a command does not travel with the others."""


class Wires:
    """They are opened when there is something to send, and again after they broke."""

    def __init__(self, pool: Any) -> None:
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

    def __init__(self, pool: Any) -> None:
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
