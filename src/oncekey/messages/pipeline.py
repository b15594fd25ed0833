"""Two statements in one round trip, on a psycopg connection of either colour.

The savepoint and the claim travel together, and so do the completion and the release. The
statements are prepared; where the server has forgotten them, or a pooler stands between, the
slower way of one statement after the other is taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ExecStatus

from oncekey.messages.statements import Values

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn, PGresult


_PARAMETER: Final = re.compile(r"(?<![:\w']):(\w+)")
_BINARY: Final = 1


class Prepared(NamedTuple):
    """A statement with numbered parameters, under a name made from its text."""

    name: bytes
    text: bytes
    parameters: tuple[str, ...]


@cache
def prepared(statement: str) -> Prepared:
    """The statement as the server is told it."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    text = _PARAMETER.sub(number, statement)
    name = f"oncekey_{sha256(text.encode()).hexdigest()[:16]}"
    return Prepared(name.encode(), text.encode(), tuple(names))


_known: Final[WeakKeyDictionary[Any, set[bytes]]] = WeakKeyDictionary()
"""The names that the server knows, for each connection."""


def names_on(connection: Any) -> set[bytes]:
    """The statements that are prepared on the connection."""
    return _known.setdefault(connection, set())


def may_prepare(connection: Any) -> bool:
    """Whether the user lets statements be prepared."""
    return connection.prepare_threshold is not None


def prepare(pgconn: PGconn, statement: Prepared) -> PQGen[None]:
    """The server knows the statement. Inside a savepoint: it may know it already."""
    pgconn.send_prepare(statement.name, statement.text)
    (result,) = yield from execute(pgconn)
    _checked(result)


def say(pgconn: PGconn, script: str) -> PQGen[None]:
    """The script has run. psycopg does not hear of a rollback to a savepoint in it.

    It would have the server forget everything that is prepared, as after any rollback.
    """
    pgconn.send_query(script.encode())
    for result in (yield from execute(pgconn)):
        _checked(result)


def together(pgconn: PGconn, statements: list[tuple[str, Values | None]]) -> PQGen[list[list[Any]]]:
    """The rows of each statement, after one round trip for all of them.

    Those with values are prepared under the name of their text; the others need no preparation,
    so that a savepoint is set even where the server has forgotten what follows it.
    """
    pgconn.enter_pipeline_mode()
    try:
        for text, values in statements:
            if values is None:
                pgconn.send_query_params(text.encode(), None)
                continue
            name, _, parameters = prepared(text)
            given = [values[one] for one in parameters]
            formats = [type(one) is bytes for one in given]
            pgconn.send_query_prepared(name, [_told(one) for one in given], formats, _BINARY)
        pgconn.pipeline_sync()
        yield from send(pgconn)
        results: list[PGresult] = []
        for _ in range(len(statements) + 1):  # the last is the end of the pipeline
            results += yield from fetch_many(pgconn)
    finally:
        pgconn.exit_pipeline_mode()
    for result in results:
        _checked(result)
    return [_rows(result) if result.nfields else [] for result in results[: len(statements)]]


def _checked(result: PGresult) -> None:
    if result.status == ExecStatus.FATAL_ERROR:
        raise error_from_result(result)


def _told(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    return str(value).encode()


_READERS: Final[dict[int, Callable[[bytes], Any]]] = {
    16: b"\x01".__eq__,  # bool
    17: bytes,  # bytea
    20: lambda data: int.from_bytes(data, signed=True),  # int8
    23: lambda data: int.from_bytes(data, signed=True),  # int4
    25: bytes.decode,  # text
    1043: bytes.decode,  # varchar
}
"""By the number of the type."""


def _rows(result: PGresult) -> list[Any]:
    readers = [_READERS[result.ftype(column)] for column in range(result.nfields)]
    return [
        tuple(
            None if (data := result.get_value(row, column)) is None else read(data)
            for column, read in enumerate(readers)
        )
        for row in range(result.ntuples)
    ]
