"""What is said to PostgreSQL on one connection, for both colours.

The driver's connections wait for such generators in either colour, and ask them again several
times a second: so none of them waits for ever for a server that stands still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, PGnotify
from psycopg.waiting import Wait

from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult


C = TypeVar("C", bound="psycopg.BaseConnection[Any]")

Values = Sequence[bytes | None]
Hears = Callable[[float], object]
"""Whether there is something to read, once so many milliseconds are over or before."""

BINARY: Final = 1
ROWS: Final = 2
"""How libpq says that a result is binary, and that it has rows."""
_BOUND: Final = b"SELECT set_config('lock_timeout', '4s', false) WHERE pg_backend_pid() = %d"


class NoAnswerError(psycopg.OperationalError):
    """The server said nothing for too long. The connection is closed."""


class Statement(NamedTuple):
    """A statement that is prepared on each connection; its values and its column are binary.

    The name is made from the text: where a pooler has it prepared already, it is the same.
    """

    name: bytes
    text: bytes
    formats: list[int]
    kinds: tuple[str, ...] = ()
    """The types of its values, or of what its arrays hold."""
    bound: Statement | None = None
    """The same for a session that waits for no row longer than it should."""


class Line(Generic[C]):
    """A connection, and what is known about it."""

    def __init__(self, connection: C, era: int = 0, hears: Hears | None = None) -> None:
        """Nothing was said yet. `hears` is for a connection that is ours alone."""
        self.connection = connection
        self.era = era
        self.hears = hears
        self.bound = None if hears else False
        self.since = 0.0
        self.prepared: set[bytes] = set()
        self.heard: list[PGnotify] = []


def perform(
    line: Line[C], statement: Statement, values: Values, seconds: float
) -> PQGen[list[bytes]]:
    """The only column of the rows of one statement, which is a transaction of its own."""
    pgconn = line.connection.pgconn
    if statement.bound is not None:
        if line.bound is None:
            yield from _bind(line, seconds)
        statement = statement.bound if line.bound else statement
    if statement.name not in line.prepared:
        yield from _prepare(line, statement, seconds)
    pgconn.send_query_prepared(statement.name, values, statement.formats, BINARY)
    return (yield from go_on(line, statement, values, seconds))


def go_on(
    line: Line[C],
    statement: Statement,
    values: Values,
    seconds: float,
    first: PGresult | None = None,
) -> PQGen[list[bytes]]:
    """The same for what was sent already, and of which `first` was read."""
    pgconn = line.connection.pgconn
    try:
        result = yield from _answer(pgconn, seconds, first)
    except psycopg.errors.InvalidSqlStatementName:
        # Somebody has discarded it, or a pooler has given us another session.
        yield from _prepare(line, statement, seconds)
        pgconn.send_query_prepared(statement.name, values, statement.formats, BINARY)
        result = yield from _answer(pgconn, seconds)
    return _column(result)


def say(line: Line[C], script: bytes, seconds: float) -> PQGen[list[bytes]]:
    """The first column, as text, of what the last statement of a script answers."""
    line.connection.pgconn.send_query(script)
    result = yield from _answer(line.connection.pgconn, seconds)
    return _column(result)


def listen(line: Line[C], channel: bytes, seconds: float) -> PQGen[None]:
    """Somebody has called on the channel, or the time is over."""
    end = monotonic() + seconds
    pgconn = line.connection.pgconn
    while not any(call.relname == channel for call in line.heard) and monotonic() < end:
        if (yield Wait.R):
            pgconn.consume_input()
            _pass_on(pgconn)


def _bind(line: Line[C], seconds: float) -> PQGen[None]:
    """Nothing waits long in this session any more, unless a pooler lends it to others as well."""
    own = line.connection.pgconn.backend_pid  # which a pooler makes up
    line.bound = bool((yield from say(line, _BOUND % own, seconds)))


def _prepare(line: Line[C], statement: Statement, seconds: float) -> PQGen[None]:
    pgconn = line.connection.pgconn
    # A server answers with its own spelling, a pooler with the one that the client asked for.
    encoding = pgconn.parameter_status(b"client_encoding") or b""
    if encoding.upper().replace(b"-", b"") != b"UTF8":
        msg = "the connections of the pool must speak UTF-8; open them with client_encoding='utf8'"
        raise ConfigurationError(msg)
    pgconn.send_prepare(statement.name, statement.text)
    with suppress(psycopg.errors.DuplicatePreparedStatement):
        yield from _answer(pgconn, seconds)
    line.prepared.add(statement.name)


def _answer(pgconn: PGconn, seconds: float, last: PGresult | None = None) -> PQGen[PGresult]:
    """The last result of what was sent, once all of it was read; nothing follows an error."""
    end = monotonic() + seconds
    while pgconn.flush():
        if not (yield Wait.W):
            _in_time(pgconn, end, seconds)
    while True:
        while pgconn.is_busy():
            if (yield Wait.R):
                pgconn.consume_input()
            else:
                _in_time(pgconn, end, seconds)
        result = pgconn.get_result()
        if result is None:
            break
        last = result
    _pass_on(pgconn)
    assert last is not None  # noqa: S101 - libpq gives one for whatever was sent
    if last.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(last)
    return last


def _in_time(pgconn: PGconn, end: float, seconds: float) -> None:
    if monotonic() >= end:
        raise silent(pgconn, seconds)


def silent(pgconn: PGconn, seconds: float) -> NoAnswerError:
    """What is told who has waited so long. The connection is closed."""
    pgconn.finish()
    return NoAnswerError(f"it said nothing for {seconds:g} seconds")


def _pass_on(pgconn: PGconn) -> None:
    """Who listens on this connection is told; it may be the caller, whose connection it is."""
    while call := pgconn.notifies():
        if pgconn.notify_handler is not None:
            pgconn.notify_handler(call)


def _column(result: PGresult) -> list[bytes]:
    return [result.get_value(number, 0) or b"" for number in range(result.ntuples)]


# One statement on a connection that is lent, in either colour.
#
# Code that blocks waits for most answers here, in half the time that the driver's machinery takes:
# on a connection of our own, for an answer that comes in one piece and says nothing unusual.
# Whatever is left over is left to the driver, which goes on where this has stopped.


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
