"""Two statements in one round trip, on a psycopg connection of either colour.

The savepoint and the claim are sent together, and so are the completion and the release. The
statements are prepared. If the server has dropped them, or behind a pooler, they are sent one after
the other, which is slower.
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
    """Return the statement as it is sent to the server."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    text = _PARAMETER.sub(number, statement)
    name = f"oncekey_{sha256(text.encode()).hexdigest()[:16]}"
    return Prepared(name.encode(), text.encode(), tuple(names))


_known: Final[WeakKeyDictionary[Any, set[bytes]]] = WeakKeyDictionary()
"""The names of the statements that are prepared, for each connection."""


def names_on(connection: Any) -> set[bytes]:
    """Return the names of the statements that are prepared on the connection."""
    return _known.setdefault(connection, set())


def may_prepare(connection: Any) -> bool:
    """Return whether the user lets statements be prepared."""
    return connection.prepare_threshold is not None


def prepare(pgconn: PGconn, statement: Prepared) -> PQGen[None]:
    """Prepare the statement. Use a savepoint around it, since the server may have it already."""
    pgconn.send_prepare(statement.name, statement.text)
    (result,) = yield from execute(pgconn)
    _checked(result)


def say(pgconn: PGconn, script: str) -> PQGen[None]:
    """Run the script, without psycopg noticing a rollback to a savepoint in it.

    psycopg would make the server drop all prepared statements, as after any rollback.
    """
    pgconn.send_query(script.encode())
    for result in (yield from execute(pgconn)):
        _checked(result)


def together(pgconn: PGconn, statements: list[tuple[str, Values | None]]) -> PQGen[list[list[Any]]]:
    """Send all statements in one round trip. Return the rows of each.

    Statements with values must be prepared. The others need no preparation, so that a savepoint is
    set even if the server has dropped the statement after it.
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
"""Readers by the number (OID) of the type."""


def _rows(result: PGresult) -> list[Any]:
    readers = [_READERS[result.ftype(column)] for column in range(result.nfields)]
    return [
        tuple(
            None if (data := result.get_value(row, column)) is None else read(data)
            for column, read in enumerate(readers)
        )
        for row in range(result.ntuples)
    ]
