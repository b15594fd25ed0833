"""A wire: one connection that all coroutines of an event loop share.

The commands of one turn of the loop leave in few writes, and the replies arrive in as few reads as
the system allows. redis-py opens the connection with all its settings; from then on it is used
directly.

When a caller is cancelled, the wire stays usable: the reply is read and dropped. When a wire
breaks, the commands that were sent fail, and their outcome is unknown. Those that were not sent yet
are given back, and are sent on another wire.

Threads do not share connections, so `connection.py` is other code, and both are written by hand.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Final

from hiredis import PushNotification, Reader
from redis import exceptions as told

from oncekey.compat import input_check
from oncekey.stores.redis.connection import WHAT_FOR
from oncekey.stores.redis.errors import elsewhere

MOST_ON_THE_WAY: Final = 512
"""The number of commands that may wait for a reply on one wire. Others queue."""
ENOUGH: Final = 32
"""The number of commands that are sent before the turn of the loop is over.

Otherwise the server would be idle while many tasks ask, and they while it answers all of them.
"""
_MORE: Final = object()
_PLAIN: Final = frozenset({int, bytes, list, type(None)})
"""The types of most replies, none of which is an error."""
_READ: Final = 65536
Asked = tuple[bytes, "asyncio.Future[Any]"]
"""A command, and the future for its reply."""
Woken = tuple["asyncio.Future[Any]", tuple[Callable[["asyncio.Future[Any]"], object], Context]]
"""A future that is done, and the callback that it no longer calls, with its context."""
# Seconds without a reply after which the socket is checked before a command is sent. The loop
# learns that the server has closed the connection, but maybe only after it has sent the command.
_IDLE: Final = 0.02


class Wire(asyncio.BufferedProtocol):
    """A connection, from the moment that redis-py has opened it until it breaks or is closed."""

    def __init__(self, connection: Any, unsent: Callable[[Iterable[Asked]], None]) -> None:
        """Take over an open connection that is not used otherwise.

        `unsent` is called with the commands that were not sent before the wire ended.
        """
        self.connection = connection
        self._give_back = unsent
        self.fit = True
        """Whether new commands may be sent: not broken, and not asked by the server to move."""
        self._loop = asyncio.get_running_loop()
        self._transport: Any = connection._writer.transport
        self._before = self._transport.get_protocol()
        self._patience: float | None = connection.socket_timeout
        self._buffer = memoryview(bytearray(_READ))
        self._reader: Any = Reader(  # its type stubs do not know memoryview
            protocolError=told.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_MORE,
        )
        self._unsent: deque[Asked] = deque()
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._heard_at = self._loop.time()
        self._leaves_soon = False  # whether a flush is scheduled
        self._full = False  # whether the transport has paused writing
        self._clock: asyncio.TimerHandle | None = None
        self._has_input = input_check(self._transport.get_extra_info("socket").fileno())
        self._transport.set_protocol(self)

    def ask(self, asked: Asked) -> None:
        """Send the command in this turn of the loop. Its future gets the reply."""
        self._unsent.append(asked)
        if not self._leaves_soon:
            self._leaves_soon = True
            self._loop.call_soon(self._leave)
        elif len(self._unsent) >= ENOUGH and not self._silent_for_long():
            self._flush()

    def close(self) -> None:
        """Abort the connection. Commands without a reply fail."""
        self._break(told.ConnectionError("the connection was closed"))

    # Sending

    def _leave(self) -> None:
        if not self._waiting and self._silent_for_long() and self._has_input():
            # There is something to read, maybe the end of the connection. The loop reads it in its
            # next turn, and calls this after that.
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
            if not reply.done():  # cancelled before it was sent
                leaving.append(packed)
                self._waiting.append((now, reply))
        if leaving:
            self._transport.write(b"".join(leaving))
            if self._clock is None and self._patience is not None:
                self._clock = self._loop.call_at(now + self._patience, self._look_at_the_clock)

    def pause_writing(self) -> None:
        """Stop sending: the transport's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """Send again."""
        self._full = False
        self._flush()

    # Receiving

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer has its size
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse the bytes that arrived, and resolve the futures of complete replies."""
        self._heard_at = self._loop.time()
        gets, waiting, woken = self._reader.gets, self._waiting, list[Woken]()
        try:
            self._reader.feed(self._buffer, 0, nbytes)
            while (reply := gets()) is not _MORE:
                plain = type(reply) in _PLAIN
                if not plain and type(reply) is PushNotification:
                    self.fit = False  # the server wants clients to move
                    continue
                _, future = waiting.popleft()
                if future.done():  # cancelled after it was sent
                    continue
                callbacks = getattr(future, "_callbacks", None)
                if callbacks is not None and len(callbacks) == 1:  # of the task that awaits it
                    future.remove_done_callback(callbacks[0][0])
                    woken.append((future, callbacks[0]))
                if plain or not isinstance(reply, Exception):
                    future.set_result(reply)
                else:
                    self.fit = self.fit and not elsewhere(reply)
                    future.set_exception(reply)
        except (told.InvalidResponse, IndexError) as error:  # not the protocol of Redis
            self._break(told.ConnectionError(f"the connection broke: {error}"))
            return
        finally:
            if woken:
                self._loop.call_soon(_wake, self._loop, woken)
        if not self.fit:
            self._go_elsewhere()
        elif self._unsent and not self._leaves_soon:
            self._flush()

    def eof_received(self) -> None:
        """Stop sending: the server has closed the connection. The transport closes itself."""
        self.fit = False
        self._hand_over()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the commands that wait for a reply."""
        self._before.connection_lost(exc)  # redis-py waits for this call when it closes
        why = "the server closed the connection" if exc is None else str(exc)
        self._break(told.ConnectionError(f"the connection broke: {why}"))

    # The end of a wire

    def _look_at_the_clock(self) -> None:
        """Break the wire if the oldest command is too late. One timer is enough for all."""
        self._clock = None
        if not self._waiting or self._patience is None:
            return
        late_at = self._waiting[0][0] + self._patience
        if self._loop.time() < late_at:
            self._clock = self._loop.call_at(late_at, self._look_at_the_clock)
        else:
            self._break(told.TimeoutError("no reply in time"))

    def _go_elsewhere(self) -> None:
        """Give back what was not sent, and close once all replies have arrived."""
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
                reply.set_exception(type(error)(*error.args))  # each needs its own traceback
        self._transport.abort()

    def _hand_over(self) -> None:
        unsent, self._unsent = self._unsent, deque()
        if unsent:
            self._give_back(unsent)


def _wake(loop: asyncio.AbstractEventLoop, woken: Iterable[Woken]) -> None:
    """Wake the tasks whose replies arrived together, in one call of the loop and not in one each.

    If one of them ends the program, the others are woken when the loop runs again.
    """
    left = iter(woken)
    try:
        for future, (callback, context) in left:
            context.run(callback, future)
    except BaseException:
        loop.call_soon(_wake, loop, left)
        raise


# The wires of one event loop: one for short commands, and one for those that would delay them.


LARGE: Final = 16384
"""The size in bytes from which on a command is sent apart from the others."""


class Wires:
    """The two wires of a loop, opened when there is something to send, also after they broke."""

    def __init__(self, pool: Any) -> None:
        """Take connections from this pool. Use on the running loop only."""
        self.loop = asyncio.get_running_loop()
        self._swift = _Lane(pool)
        self._apart = _Lane(pool)

    def send(self, packed: bytes, *, apart: bool) -> asyncio.Future[Any]:
        """Send the command once, and return the future for its reply.

        A command that is `apart`, or large, is sent on the second wire.
        """
        reply: asyncio.Future[Any] = asyncio.Future(loop=self.loop)
        lane = self._apart if apart or len(packed) > LARGE else self._swift
        wire = lane.wire
        if wire is not None and wire.fit:
            wire.ask((packed, reply))
        else:
            lane.ask_soon(((packed, reply),))
        return reply

    async def aclose(self) -> None:
        """Give the connections back to the pool. The next command opens new ones."""
        await self._swift.aclose()
        await self._apart.aclose()


class _Lane:
    """One wire, and the next one when it breaks."""

    def __init__(self, pool: Any) -> None:
        self.wire: Wire | None = None
        self._pool = pool
        self._queue: list[Asked] = []
        self._opening: asyncio.Task[None] | None = None

    def ask_soon(self, asked: Iterable[Asked]) -> None:
        """Send these as soon as a wire is open, or fail them if it cannot be opened."""
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
        """Close the wire. The outcome of commands without a reply is unknown."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait((self._opening,))
        await self._give_back()

    async def _give_back(self) -> None:
        """Disconnect, and give the connection back to the pool."""
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.close()
            await wire.connection.disconnect()
            await self._pool.release(wire.connection)
