"""PyMySQL for blocking code and asyncmy for coroutines: connect, ask, close.

Everything that differs between the two drivers is here.
"""

from __future__ import annotations

import asyncio
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import asyncmy
import asyncmy.errors
import pymysql
from asyncmy.cursors import Cursor as AsyncCursor
from pymysql.cursors import Cursor

from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.schema import SESSION

if TYPE_CHECKING:
    from oncekey.stores.mysql.rows import Row

Connection: TypeAlias = "pymysql.Connection[Any]"
AsyncConnection: TypeAlias = asyncmy.Connection

C = TypeVar("C")

FAILURES: Final = (
    pymysql.Error,  # `pymysql.err` may be a copy of the module, which Django has imported
    asyncmy.errors.Error,
    OSError,  # with TimeoutError
    EOFError,
)
"""What a driver raises for a server that refuses, breaks off or is silent."""


class MySQLLine(Generic[C]):
    """A connection, and what is known about its session."""

    def __init__(self, connection: C, era: int = 0, settings: str = "") -> None:
        """Take a new connection. `settings` stands before each statement."""
        self.connection = connection
        self.era = era
        self.settings = settings
        self.since = 0.0
        self.broken = False
        self.largest = 0
        """How many bytes a statement may have, as the server says. 0: the server was not asked."""


class NoAnswerError(TimeoutError):
    """The server did not answer in time."""


def connect(target: MySQLTarget, seconds: float) -> Connection:
    """Return a new connection that waits so long for an answer."""
    connection = pymysql.connect(
        **target.options,
        charset="utf8mb4",
        autocommit=None,
        connect_timeout=target.patience,
        read_timeout=seconds,
        write_timeout=seconds,
        program_name="oncekey",
        init_command=None,
    )
    try:
        for statement in SESSION:
            ask(connection, statement, seconds)
    except BaseException:
        close(connection)
        raise
    return connection


async def connect_async(target: MySQLTarget, seconds: float) -> AsyncConnection:
    """Return a new connection that waits so long for the answer about its session."""
    async with asyncio.timeout(target.patience + seconds):
        connection = await asyncmy.connect(
            **target.options,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(1, round(target.patience)),  # whole seconds
        )
    try:
        for statement in SESSION:
            await ask_async(connection, statement, seconds)
    except BaseException:
        await close_async(connection)
        raise
    return connection


def ask(connection: Any, statement: str, seconds: float) -> list[Row]:
    """Run the statement. Return the rows of its first result."""
    before = connection._read_timeout, connection._write_timeout
    connection._read_timeout = connection._write_timeout = seconds
    try:
        with connection.cursor(Cursor) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())
    finally:
        connection._read_timeout, connection._write_timeout = before


async def ask_async(connection: AsyncConnection, statement: str, seconds: float) -> list[Row]:
    """Run the statement. Return the rows of its first result."""
    try:
        async with asyncio.timeout(seconds), connection.cursor(AsyncCursor) as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall())
    except TimeoutError:
        msg = f"it said nothing for {seconds:g} seconds"
        raise NoAnswerError(msg) from None


def is_stale(connection: Any) -> bool:
    """Return whether the server has closed an idle connection, without asking it.

    A server sends nothing on an idle connection; when it closes one, there is something to read.
    The drivers themselves tell only by sending something, or after the loop has turned.
    """
    return connection._sock is None or _says_something(connection._sock.fileno())


def is_stale_async(connection: Any) -> bool:
    """Return whether the server has closed an idle connection, without asking it."""
    transport = connection._transport
    if transport is None or transport.is_closing():
        return True
    return _says_something(transport.get_extra_info("socket").fileno())


def _says_something(socket: int) -> bool:
    hears = select.poll()
    hears.register(socket, select.POLLIN)
    return bool(hears.poll(0))


def close(connection: Connection) -> None:
    """Close the connection, whatever state it is in."""
    with suppress(*FAILURES):
        connection.close()


async def close_async(connection: AsyncConnection) -> None:
    """Close the connection, whatever state it is in."""
    with suppress(*FAILURES):
        connection.close()


def abandon(connection: Any) -> None:
    """Close the socket of an idle connection whose event loop may be closed.

    A closed loop runs nothing any more, so that its transports never get to close theirs.
    """
    transport = connection._transport
    if transport is None:
        return
    with suppress(RuntimeError):
        transport.abort()
        return
    close_now = getattr(transport, "_call_connection_lost", None)  # asyncio's own have it
    if close_now is not None:
        close_now(None)
