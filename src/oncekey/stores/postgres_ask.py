"""One statement on a connection that is lent, in either colour.

Code that blocks waits for most answers here, in half the time that the driver's machinery takes:
on a connection of our own, for an answer that comes in one piece and says nothing unusual.
Whatever is left over is left to the driver, which goes on where this has stopped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import psycopg

from oncekey.stores.postgres_wire import BINARY, ROWS, go_on, perform, silent

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from oncekey.stores.postgres_wire import Line, Statement, Values

_PER_MILLE: Final = 1000
_CANCELLING: Final = 5.0


def ask(
    line: Line[Connection[Any]], statement: Statement, values: Values, seconds: float
) -> list[bytes]:
    """The only column of the rows of one statement, which is a transaction of its own."""
    hears = line.hears
    if line.bound and statement.bound is not None:
        statement = statement.bound
    if hears is None or statement.name not in line.prepared:
        return line.connection.wait(perform(line, statement, values, seconds))
    pgconn = line.connection.pgconn
    first = None
    try:
        pgconn.send_query_prepared(statement.name, values, statement.formats, BINARY)
        left = not pgconn.flush()
        heard = left and hears(seconds * _PER_MILLE)
    except KeyboardInterrupt:  # wherever it comes, the server may have the question by now
        with suppress(psycopg.Error):
            line.connection.cancel_safe(timeout=_CANCELLING)
        raise
    if left:
        if not heard:
            raise silent(pgconn, seconds)
        pgconn.consume_input()
        if not pgconn.is_busy() and (first := pgconn.get_result()) is not None:
            one = first.status == ROWS and first.ntuples == 1
            if one and not pgconn.is_busy() and pgconn.get_result() is None:
                return [first.get_value(0, 0) or b""]
    return line.connection.wait(go_on(line, statement, values, seconds, first))


async def ask_async(
    line: Line[AsyncConnection[Any]], statement: Statement, values: Values, seconds: float
) -> list[bytes]:
    """The same for coroutines, which wait while others go on."""
    return await line.connection.wait(perform(line, statement, values, seconds))
