"""One connection that redis-py has opened, spoken to without what redis-py does around a command.

That takes as long as the command itself: options, counters, hooks, and a poll before every read.
"""

from __future__ import annotations

import math
import select
import socket
import struct
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, cast

from hiredis import PushNotification, Reader, pack_command
from redis import exceptions as told

Words = tuple[str | bytes | int, ...]

_pack_any: Final = cast("Callable[[Words], bytes]", pack_command)  # its types know of one word
_SCRIPT: Final = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%b\r\n$1\r\n1\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
_WITH_BYTES: Final = _SCRIPT + b"$%d\r\n%b\r\n"
_ALONE: Final = 5
_MORE: Final = object()
_READ: Final = 32768
_SECONDS: Final = struct.Struct("@ll")
IDLE: Final = 0.005
"""Seconds after which a line is looked at before it is used: the server may have hung up."""


def pack(words: Words) -> bytes:
    """The command as bytes of the wire.

    A script with one key and one or two arguments, all of them bytes, is what is sent most: it is
    written in a third of the time.
    """
    if words[0] == "EVALSHA" and words[2] == 1 and type(words[1]) is bytes:
        called: Any = words  # a script is named in bytes where all its arguments are bytes
        count = len(called)
        if count == _ALONE:
            _, script, _, name, ask = called
            return _SCRIPT % (count, script, len(name), name, len(ask), ask)
        if count == _ALONE + 1:
            _, script, _, name, ask, data = called
            return _WITH_BYTES % (count, script, len(name), name, len(ask), ask, len(data), data)
    return _pack_any(words)


class Line:
    """A connection while it is ours. What breaks it is raised, and nothing is sent twice."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - any connection of redis-py
        """The connection is connected, and nobody else uses it."""
        self.connection = connection
        self._socket: socket.socket = connection._sock  # noqa: SLF001 - there is no other way to it
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._buffer = bytearray(_READ)
        self._reader: Any = Reader(  # whose own types know of no bytearray
            protocolError=told.InvalidResponse,
            replyError=connection._parser.parse_error,  # noqa: SLF001 - the same errors as elsewhere
            notEnoughData=_MORE,
        )
        self._used_at = 0.0
        self.moved = False
        """Whether the server has said something that nobody asked for: it wants us elsewhere."""
        patience = self._socket.gettimeout()
        if patience is not None and type(self._socket) is socket.socket:
            self._leave_time_to_the_system(patience)

    def ask(self, words: Words) -> Any:  # noqa: ANN401 - whatever the server replies
        """The reply to one command."""
        reader, buffer = self._reader, self._buffer
        try:
            self._socket.sendall(pack(words))
            reply: Any = _MORE
            while reply is _MORE:
                count = self._socket.recv_into(buffer)
                if not count:
                    raise told.ConnectionError("the server closed the connection")
                reader.feed(buffer, 0, count)
                reply = reader.gets()
                while type(reply) is PushNotification:
                    self.moved = True
                    reply = reader.gets()
        except (TimeoutError, BlockingIOError):
            raise told.TimeoutError("no reply in time") from None
        except OSError as error:
            raise told.ConnectionError(f"the connection broke: {error}") from error
        if isinstance(reply, Exception):
            raise reply
        self._used_at = monotonic()
        return reply

    @property
    def fit(self) -> bool:
        """Whether it can be used: closed neither here nor there, and silent."""
        if self.moved or self.connection._sock is not self._socket:  # noqa: SLF001 - as above
            return False
        return monotonic() - self._used_at < IDLE or not self._poll.poll(0)

    def leave(self) -> None:
        """The connection is as redis-py has made it."""
        if self.connection._sock is self._socket:  # noqa: SLF001 - as above
            self._socket.settimeout(self.connection.socket_timeout)

    def _leave_time_to_the_system(self, patience: float) -> None:
        """Python would ask the system before each send and read whether it may."""
        fraction, whole = math.modf(patience)
        time = _SECONDS.pack(int(whole), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)
        self._socket.settimeout(None)


class AsyncLine:
    """The same for coroutines, by the means of redis-py."""

    def __init__(self, connection: Any) -> None:  # noqa: ANN401 - any connection of redis.asyncio
        """The connection is connected, and nobody else uses it."""
        self.connection = connection

    async def ask(self, words: Words) -> Any:  # noqa: ANN401 - whatever the server replies
        """The reply to one command."""
        await self.connection.send_packed_command((pack(words),))
        return await self.connection.read_response(disable_decoding=True)
