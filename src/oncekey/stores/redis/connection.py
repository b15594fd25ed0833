"""A line: one connection of redis-py for one command at a time, used without its overhead.

That overhead takes as long as the command itself: options, counters, hooks, and a poll before every
read.

This file is written by hand, and not generated from `connection_async.py`: here each caller has a
connection to itself, there all callers of a loop share one.
"""

from __future__ import annotations

import math
import os
import socket
import struct
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final, cast

import redis
from hiredis import PushNotification, Reader, pack_command
from redis import exceptions as told
from redis.exceptions import MaxConnectionsError, ResponseError

from oncekey.compat import input_check, renew_after_fork
from oncekey.stores.redis.errors import elsewhere

Words = tuple[str | bytes | int, ...]

_pack_any: Final = cast("Callable[[Words], bytes]", pack_command)  # its type says one word
_SCRIPT: Final = b"*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%%b\r\n$1\r\n1\r\n$%%d\r\n%%b\r\n$%%d\r\n%%b\r\n"
_WITH_ONE: Final = _SCRIPT % 5
_WITH_TWO: Final = _SCRIPT % 6 + b"$%d\r\n%b\r\n"
_TEXT: Final = frozenset((bytes, str))
_MORE: Final = object()
_READ: Final = 32768
_SECONDS: Final = struct.Struct("@ll")
IDLE: Final = 0.005
"""Seconds after which a line is checked before it is used: the server may have closed it."""


def pack(words: Words) -> bytes:
    """Encode a command."""
    if _TEXT.issuperset(map(type, words)):
        return _pack_any(words)
    # While hiredis turns a number into text, a handler of a signal may raise: then it crashes.
    text = (bytes, str)
    return _pack_any(tuple([word if isinstance(word, text) else str(word) for word in words]))


def pack_script(sha: bytes, name: bytes, arguments: tuple[bytes, ...]) -> bytes:
    """Encode the call of a script with one key.

    Most have one or two arguments. These are encoded in a third of the time.
    """
    count = len(arguments)
    if count == 1:
        (ask,) = arguments
        return _WITH_ONE % (sha, len(name), name, len(ask), ask)
    if count == 2:  # noqa: PLR2004 - as it says
        ask, data = arguments
        return _WITH_TWO % (sha, len(name), name, len(ask), ask, len(data), data)
    return pack(call_of(sha, name, arguments))


def call_of(sha: bytes, name: bytes, arguments: tuple[bytes, ...]) -> Words:
    """Return the command that calls a script with one key."""
    return ("EVALSHA", sha, "1", name, *arguments)


class Packer:
    """Encode the commands of redis-py, as `pack` does."""

    def pack(self, name: str, *words: str | bytes | int) -> list[bytes]:
        """Encode a command, whose name may have several words."""
        return [pack((*name.split(), *words))]


class Line:
    """A connection while it is ours. Raise what breaks it, and never send a command twice."""

    def __init__(self, connection: Any) -> None:
        """Take over an open connection that is not used otherwise."""
        self.connection = connection
        self._socket: socket.socket = connection._sock
        self._has_input = input_check(self._socket.fileno())
        self._buffer = bytearray(_READ)
        self._reader: Any = Reader(  # its type stubs do not know bytearray
            protocolError=told.InvalidResponse,
            replyError=connection._parser.parse_error,
            notEnoughData=_MORE,
        )
        self._used_at = 0.0
        self.moved = False
        """Whether the server has sent a push message: it wants clients to move."""
        patience = self._socket.gettimeout()
        if patience is not None and type(self._socket) is socket.socket:
            self._leave_time_to_the_system(patience)

    def ask(self, words: Words) -> Any:
        """Send one command and return its reply. Raise the errors of redis-py."""
        return self.send(pack(words))

    def send(self, packed: bytes) -> Any:
        """Do the same for a command that is encoded."""
        reader, buffer = self._reader, self._buffer
        try:
            self._socket.sendall(packed)
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
        """Whether it can be used: open on both sides, and with nothing to read."""
        if self.moved or self.connection._sock is not self._socket:
            return False
        return monotonic() - self._used_at < IDLE or not self._has_input()

    def leave(self) -> None:
        """Restore the connection to the state in which redis-py made it."""
        if self.connection._sock is self._socket:
            self._socket.settimeout(self.connection.socket_timeout)

    def _leave_time_to_the_system(self, patience: float) -> None:
        """Let the system apply the time-out. Python would poll before each send and read.

        gevent and eventlet keep every socket non-blocking, where the system applies none, and wait
        for it in a loop of their own. There the time-out stays with them.
        """
        self._socket.settimeout(None)
        if not os.get_blocking(self._socket.fileno()):
            self._socket.settimeout(patience)
            return
        fraction, whole = math.modf(patience)
        time = _SECONDS.pack(int(whole), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, time)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, time)


class AsyncLine:
    """The same for coroutines, with the methods of redis-py."""

    def __init__(self, connection: Any) -> None:
        """Take over an open connection that is not used otherwise."""
        self.connection = connection

    async def ask(self, words: Words) -> Any:
        """Send one command and return its reply."""
        await self.connection.send_packed_command((pack(words),))
        return await self.connection.read_response(disable_decoding=True)


# The lines of one pool of redis-py, kept open between commands.


# Old pools require the name of a command; new ones warn about it.
_OLD: Final = tuple(map(int, redis.__version__.split(".")[:2])) < (5, 3)
PATIENCE: Final = 5.0
"""Seconds to wait for a server, or for a free connection."""
_LOOK_AGAIN: Final = 0.001
WHAT_FOR: Final[tuple[str, ...]] = ("EVALSHA",) if _OLD else ()


class Lines:
    """The idle lines, which wait for the next command."""

    def __init__(self, pool: Any, most: int) -> None:
        """Keep at most this many idle lines out of the pool."""
        self._pool = pool
        self._most = most
        self._idle: list[Line] = []  # pop and append are atomic, so threads need no lock
        renew_after_fork(self)

    def send(self, packed: bytes) -> Any:
        """Send the command once, and return its reply."""
        line = self._take()
        try:
            reply = line.send(packed)
        except BaseException as error:
            self._give_back(line, whole=leaves_whole(error))
            raise
        if len(self._idle) < self._most:
            self._idle.append(line)
        else:
            self._give_back(line, whole=True)
        return reply

    def call_in(self) -> None:
        """Give all idle lines back to the pool."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                return
            self._give_back(line, whole=True)

    def after_fork(self) -> None:
        """Drop the parent's lines."""
        self._idle = []

    def _take(self) -> Line:
        """Return a usable line. If all connections are in use, wait until one is given back.

        Raise MaxConnectionsError after 5 seconds.
        """
        give_up = None
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                try:
                    return open_line(self._pool)
                except MaxConnectionsError:
                    give_up = give_up or monotonic() + PATIENCE
                    if monotonic() >= give_up:
                        raise
                    sleep(_LOOK_AGAIN)
                    continue
            if line.fit:
                return line
            self._give_back(line, whole=False)

    def _give_back(self, line: Line, *, whole: bool) -> None:
        close_line(self._pool, line, whole=whole)


def open_line(pool: Any) -> Line:
    """Take a connection from the pool, which has checked it.

    A pool takes back what it could not open. If an exception of a handler of a signal has cut it
    off, that may be a connection without its handshake, which it would lend to the next one.
    """
    try:
        connection = pool.get_connection(*WHAT_FOR)
    except told.RedisError:  # then redis-py has closed it
        raise
    except BaseException:
        pool.disconnect(inuse_connections=False)
        raise
    try:
        return Line(connection)
    except BaseException:
        connection.disconnect()
        pool.release(connection)
        raise


def close_line(pool: Any, line: Line, *, whole: bool) -> None:
    """Give the connection back to the pool. Disconnect it if it is not `whole`."""
    if whole and not line.moved:
        line.leave()
    else:
        line.connection.disconnect()
    pool.release(line.connection)


def leaves_whole(error: BaseException) -> bool:
    """Return whether the reply was read completely, so that the line can be used again.

    If another server may be the primary now, connect again: it may have the same address.
    """
    return isinstance(error, ResponseError) and not elsewhere(error)
