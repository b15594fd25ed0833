"""The lines out of one pool of redis-py, kept at hand between two commands."""

from __future__ import annotations

from time import monotonic, sleep
from typing import Any, Final

import redis
from redis.exceptions import MaxConnectionsError, ReadOnlyError, ResponseError

from oncekey.compat import renew_after_fork
from oncekey.stores.redis_line import Line, Words

# Old pools want to be told what for; new ones warn when they are.
_OLD: Final = tuple(map(int, redis.__version__.split(".")[:2])) < (5, 3)
PATIENCE: Final = 5.0
"""Seconds for which a server, or a free connection, is waited for."""
_LOOK_AGAIN: Final = 0.001
WHAT_FOR: Final[tuple[str, ...]] = ("EVALSHA",) if _OLD else ()


class Lines:
    """Those that no command uses now wait here for the next one."""

    def __init__(self, pool: Any, most: int) -> None:  # noqa: ANN401 - generic in redis-py's stubs
        """At most this many stay checked out of the pool while nobody uses them."""
        self._pool = pool
        self._most = most
        self._idle: list[Line] = []  # one step takes a line, one adds it: threads need no lock
        renew_after_fork(self)

    def ask(self, words: Words) -> Any:  # noqa: ANN401 - whatever the server replies
        """The reply to one command, which is sent once."""
        line = self._take()
        try:
            reply = line.ask(words)
        except BaseException as error:
            self._give_back(line, whole=leaves_whole(error))
            raise
        if len(self._idle) < self._most:
            self._idle.append(line)
        else:
            self._give_back(line, whole=True)
        return reply

    def call_in(self) -> None:
        """The pool has back what no command uses."""
        while True:
            try:
                line = self._idle.pop()
            except IndexError:
                return
            self._give_back(line, whole=True)

    def after_fork(self) -> None:
        """The parent's lines are the parent's."""
        self._idle = []

    def _take(self) -> Line:
        """A line that is fit. Where all are in use, the next that is given back."""
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


def open_line(pool: Any) -> Line:  # noqa: ANN401 - any pool of redis-py
    """A line that is connected, and whose server has not hung up."""
    return Line(pool.get_connection(*WHAT_FOR))


def close_line(pool: Any, line: Line, *, whole: bool) -> None:  # noqa: ANN401 - the same
    """The pool has the connection back, without its socket if that is not whole."""
    if whole and not line.moved:
        line.leave()
    else:
        line.connection.disconnect()
    pool.release(line.connection)


def leaves_whole(error: BaseException) -> bool:
    """Whether the reply was read to its end, so that the line is good for the next command.

    A primary that has become a replica may have a successor at the same address: better look again.
    Out of a script it says so in the middle of its words.
    """
    demoted = isinstance(error, ReadOnlyError) or "READONLY" in str(error)
    return isinstance(error, ResponseError) and not demoted
