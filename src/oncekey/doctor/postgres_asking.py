"""How the doctor's questions reach a PostgreSQL: over a connection of its own, or the caller's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from oncekey.doctor.finding import Finding
from oncekey.doctor.postgres import talk
from oncekey.doctor.talk import Refused, carry, carry_async
from oncekey.stores.postgres.address import Target, refuse_transaction
from oncekey.stores.postgres.errors import explain_connect


def of_store(store: Any) -> list[Finding]:  # noqa: ANN401 - a PostgresStore
    """What was found on its server."""
    target: Target = store._target  # noqa: SLF001 - the doctor looks inside
    try:
        with _connection(target) as connection:

            def ask(statement: str) -> Any:  # noqa: ANN401 - rows, or Refused
                try:
                    with connection.transaction(), connection.cursor(row_factory=tuple_row) as rows:
                        return rows.execute(statement).fetchall()
                except psycopg.Error as error:
                    if connection.closed:
                        raise
                    return Refused(_words(error))

            return carry(talk(), ask)
    except psycopg.Error as error:
        raise explain_connect(error, target.where) from error


async def of_store_async(store: Any) -> list[Finding]:  # noqa: ANN401 - an AsyncPostgresStore
    """What was found on its server."""
    target: Target = store._target  # noqa: SLF001 - the doctor looks inside
    try:
        async with _connection_async(target) as connection:

            async def ask(statement: str) -> Any:  # noqa: ANN401 - rows, or Refused
                try:
                    cursor = connection.cursor(row_factory=tuple_row)
                    async with connection.transaction(), cursor as rows:
                        return await (await rows.execute(statement)).fetchall()
                except psycopg.Error as error:
                    if connection.closed:
                        raise
                    return Refused(_words(error))

            return await carry_async(talk(), ask)
    except psycopg.Error as error:
        raise explain_connect(error, target.where) from error


@contextmanager
def _connection(target: Target) -> Iterator[Any]:
    """One of our own is closed afterwards; one of the caller's is left as it was."""
    given = target.given
    if given is None:
        with psycopg.Connection.connect(target.conninfo, **target.options) as connection:
            yield connection
    elif isinstance(given, psycopg.Connection):
        refuse_transaction(given.pgconn)
        yield given
    else:
        with given.connection() as connection:
            yield connection


@asynccontextmanager
async def _connection_async(target: Target) -> AsyncIterator[Any]:
    """One of our own is closed afterwards; one of the caller's is left as it was."""
    given = target.given
    if given is None:
        connecting = psycopg.AsyncConnection.connect(target.conninfo, **target.options)
        async with await connecting as connection:
            yield connection
    elif isinstance(given, psycopg.AsyncConnection):
        refuse_transaction(given.pgconn)
        yield given
    else:
        async with given.connection() as connection:
            yield connection


def _words(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error)
