"""Send statements over one connection, for blocking code and for coroutines.

These are generators, as psycopg's own, which `Connection.wait` and `AsyncConnection.wait` run. Both
resume them several times a second, so none of them waits forever for a server that hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import psycopg
from psycopg import waiting
from psycopg.errors import Diagnostic, error_from_result
from psycopg.pq import ExecStatus, PGnotify
from psycopg.waiting import Wait

from oncekey.errors import ConfigurationError

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult


C = TypeVar("C", bound="psycopg.BaseConnection[Any]")
T = TypeVar("T")

Values = Sequence[bytes | None]
Hears = Callable[[float], object]
"""Wait up to so many milliseconds for something to read. Return whether there is something."""

BINARY: Final = 1
ROWS: Final = 2
"""The numbers of libpq for the binary format, and for a result with rows."""
_BOUND: Final = (
    b"SELECT set_config('lock_timeout', '4s', false), "
    b"set_config('default_transaction_isolation', 'read committed', false), "
    b"set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
    b"WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false) WHERE pg_backend_pid() = %d"
)
_ALONE: Final = b"SELECT 1 WHERE pg_backend_pid() = %d"
_INTERVAL: Final = 0.1
"""How often a generator is resumed that waits, in seconds."""


class NoAnswerError(psycopg.OperationalError):
    """The server did not answer in time. The connection is closed."""


class UnconfirmedError(psycopg.OperationalError):
    """The commit is on this server, but nobody knows whether it is on a synchronous standby."""


class Statement(NamedTuple):
    """A statement. Its parameters and its only column are binary.

    Its name, once it is prepared, is derived from the text: if somebody has prepared it already in
    this session, it is the same statement.
    """

    name: bytes
    text: bytes
    formats: list[int]
    kinds: tuple[str, ...] = ()
    """The types of the parameters, or of the elements of its arrays."""
    bound: Statement | None = None
    """The variant for a session that is set up, which need not set limits in each call."""


class PostgresLine(Generic[C]):
    """A connection, and what is known about its session."""

    def __init__(self, connection: C, era: int = 0, hears: Hears | None = None) -> None:
        """Take a connection that is not used. `hears` is set if it is one of our own."""
        self.connection = connection
        self.era = era
        self.hears = hears
        self.pooled: bool | None = None
        """Whether a pooler shares the session with others. None: not known yet."""
        self.bound = False
        """Whether the session was set up, as one of our own is."""
        self.since = 0.0
        self.prepared: set[bytes] = set()
        self.heard: list[PGnotify] = []
        self.unconfirmed: list[str] = []
        """What the server said about a commit whose wait for the standbys was cancelled."""
        connection.add_notice_handler(partial(collect_unconfirmed, self.unconfirmed))


def collect_unconfirmed(said: list[str], notice: Diagnostic) -> None:
    """Add the warning about a cancelled wait for synchronous standbys to `said`.

    It is known by the function of the server that sends it: its text is in the server's language,
    and its SQLSTATE, 01000, is that of every warning.
    """
    if notice.source_function == "SyncRepWaitForLSN":
        said.append(notice.message_primary or "")


def check_confirmed(said: list[str]) -> None:
    """Raise UnconfirmedError if the server has said that it did not wait for the standbys."""
    if said:
        raise UnconfirmedError(said.pop())


def perform(
    line: PostgresLine[C], statement: Statement, values: Values, seconds: float
) -> PQGen[list[bytes]]:
    """Run one statement in a transaction of its own. Return its only column."""
    pgconn = line.connection.pgconn
    if line.pooled is None:
        yield from meet(line, seconds)
    if line.bound and statement.bound is not None:
        statement = statement.bound
    line.unconfirmed.clear()
    if line.pooled:  # the next statement may run in another session: nothing can be prepared
        formats = statement.formats
        pgconn.send_query_params(statement.text, values, None, formats, BINARY)
        return (yield from go_on(line, statement, values, seconds))
    if statement.name not in line.prepared:
        yield from _prepare(line, statement, seconds)
    pgconn.send_query_prepared(statement.name, values, statement.formats, BINARY)
    return (yield from go_on(line, statement, values, seconds))


def go_on(
    line: PostgresLine[C],
    statement: Statement,
    values: Values,
    seconds: float,
    first: PGresult | None = None,
) -> PQGen[list[bytes]]:
    """Go on after the statement was sent, and `first` was read. Return its only column."""
    pgconn = line.connection.pgconn
    try:
        result = yield from _answer(pgconn, seconds, first)
    except psycopg.errors.InvalidSqlStatementName:
        # Somebody has deallocated the statement.
        yield from _prepare(line, statement, seconds)
        pgconn.send_query_prepared(statement.name, values, statement.formats, BINARY)
        result = yield from _answer(pgconn, seconds)
    check_confirmed(line.unconfirmed)
    return _column(result)


def say(line: PostgresLine[C], script: bytes, seconds: float) -> PQGen[list[bytes]]:
    """Run a script. Return the first column of its last statement, as text."""
    line.connection.pgconn.send_query(script)
    result = yield from _answer(line.connection.pgconn, seconds)
    return _column(result)


def listen(line: PostgresLine[C], channel: bytes, seconds: float) -> PQGen[None]:
    """Return when there is a notification on the channel, or when the time is over."""
    end = monotonic() + seconds
    pgconn = line.connection.pgconn
    while not any(call.relname == channel for call in line.heard) and monotonic() < end:
        if (yield Wait.R):
            pgconn.consume_input()
            _pass_on(pgconn)


def meet(line: PostgresLine[C], seconds: float) -> PQGen[None]:
    """Set up a session of our own, unless a pooler shares it with others.

    Raise ConfigurationError if the session does not speak UTF-8, and ReadOnlySqlTransaction if the
    server is a standby. What a standby has may be lost: a leader that was replaced becomes one, and
    shows commits that nobody else has until it is rewound.
    """
    pgconn = line.connection.pgconn
    # A server answers with its own spelling, a pooler with that of the client.
    encoding = pgconn.parameter_status(b"client_encoding") or b""
    if encoding.upper().replace(b"-", b"") != b"UTF8":
        msg = "the connections of the pool must speak UTF-8; open them with client_encoding='utf8'"
        raise ConfigurationError(msg)
    script = _BOUND if line.hears else _ALONE
    alone = bool((yield from say(line, script % pgconn.backend_pid, seconds)))
    # A pooler does not know it. Every server says it, again when it is promoted.
    if pgconn.parameter_status(b"in_hot_standby") == b"on":
        raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby")
    line.pooled = not alone  # a pooler makes up the number of the process
    line.bound = alone and line.hears is not None


def _prepare(line: PostgresLine[C], statement: Statement, seconds: float) -> PQGen[None]:
    pgconn = line.connection.pgconn
    pgconn.send_prepare(statement.name, statement.text)
    with suppress(psycopg.errors.DuplicatePreparedStatement):
        yield from _answer(pgconn, seconds)
    line.prepared.add(statement.name)


def _answer(pgconn: PGconn, seconds: float, last: PGresult | None = None) -> PQGen[PGresult]:
    """Read all results of what was sent, and return the last one. Raise its error."""
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
    """Close the connection, and return the error for a server that did not answer in time."""
    pgconn.finish()
    return NoAnswerError(f"it said nothing for {seconds:g} seconds")


def _pass_on(pgconn: PGconn) -> None:
    """Pass notifications to the handler, which may be that of the caller whose connection it is."""
    while call := pgconn.notifies():
        if pgconn.notify_handler is not None:
            pgconn.notify_handler(call)


def _column(result: PGresult) -> list[bytes]:
    return [result.get_value(number, 0) or b"" for number in range(result.ntuples)]


# Run one statement on a lent connection.
#
# Whoever is interrupted closes the connection. `Connection.wait` of psycopg would send a cancel
# request, and one that comes while the commit waits for a standby makes the server go on without.
#
# Blocking code reads most answers here, in half the time that psycopg takes: on a connection of our
# own, if the answer comes in one piece and is a single row. Everything else is left to psycopg,
# which goes on where this has stopped.


_PER_MILLE: Final = 1000


def wait(connection: Connection[Any], gen: PQGen[T], interval: float = _INTERVAL) -> T:
    """Run a generator on the connection. If that is interrupted, the connection must be closed."""
    return waiting.wait(gen, connection.pgconn.socket, interval=interval)


async def wait_async(
    connection: AsyncConnection[Any], gen: PQGen[T], interval: float = _INTERVAL
) -> T:
    """Run a generator on the connection. If that is interrupted, the connection must be closed."""
    return await waiting.wait_async(gen, connection.pgconn.socket, interval=interval)


def ask(
    line: PostgresLine[Connection[Any]], statement: Statement, values: Values, seconds: float
) -> list[bytes]:
    """Run one statement in a transaction of its own. Return its only column."""
    hears = line.hears
    if line.bound and statement.bound is not None:
        statement = statement.bound
    if hears is None or statement.name not in line.prepared:
        return wait(line.connection, perform(line, statement, values, seconds))
    pgconn = line.connection.pgconn
    last = None
    line.unconfirmed.clear()
    pgconn.send_query_prepared(statement.name, values, statement.formats, BINARY)
    if not pgconn.flush():
        if not hears(seconds * _PER_MILLE):
            raise silent(pgconn, seconds)
        pgconn.consume_input()
        if not pgconn.is_busy() and (last := pgconn.get_result()) is not None:
            one = last.status == ROWS and last.ntuples == 1
            if one and not pgconn.is_busy():
                failed = pgconn.get_result()  # a commit can fail after its row was sent
                if failed is None and not line.unconfirmed:
                    return [last.get_value(0, 0) or b""]
                last = failed or last
    return wait(line.connection, go_on(line, statement, values, seconds, last))


async def ask_async(
    line: PostgresLine[AsyncConnection[Any]], statement: Statement, values: Values, seconds: float
) -> list[bytes]:
    """Run one statement in a transaction of its own. Return its only column."""
    return await wait_async(line.connection, perform(line, statement, values, seconds))
