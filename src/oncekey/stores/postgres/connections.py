"""What the connections of psycopg tell without asking the server."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg


def stale(connection: psycopg.BaseConnection[Any]) -> bool:
    """Return whether the server has closed the connection, without asking it.

    A server sends nothing on an idle connection; when it closes one, there is something to read. A
    statement that was not sent is a statement that certainly did not happen.
    """
    return connection.closed or bool(hearing(connection)(0))


def hearing(connection: psycopg.BaseConnection[Any]) -> Callable[[float], object]:
    """Return a function that waits so many milliseconds for something to read."""
    socket = select.poll()
    socket.register(connection.pgconn.socket, select.POLLIN)
    return socket.poll
