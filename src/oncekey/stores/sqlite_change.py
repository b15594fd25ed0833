"""One rule of the machine, applied to one record of a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar, cast

from oncekey.core.record import Record
from oncekey.core.requests import Claim, Request
from oncekey.stores import sqlite_file as file

R = TypeVar("R", bound=Request)
A = TypeVar("A")

Transition = Callable[[Record | None, R, int], tuple[Record | None, A]]


def swap(
    change: Transition[R, A], ask: R, clock: Callable[[], int], connection: sqlite3.Connection
) -> A | None:
    """The answer, if nobody else changed the record between our reading and our writing.

    The one statement that writes is a transaction by itself, and writes nothing unless the
    row is still what was read: a BEGIN and its COMMIT are spared.
    """
    place = (ask.scope or "", ask.key)
    row = connection.execute(file.SELECT_ONE, place).fetchone()
    before = None if row is None else file.from_row(row)
    after, answer = change(before, ask, clock())
    if after is before:
        return answer
    if before is None:
        written = connection.execute(file.INSERT, _first(after, ask))
    elif after is None:
        written = connection.execute(file.DELETE_SAME, (*place, *file.stamp(before)))
    else:
        values = (*file.changed(after, ask), *place, *file.stamp(before))
        afresh = after.created != before.created
        statement = file.RESTART_SAME if afresh else file.UPDATE_SAME
        written = connection.execute(statement, values)
    return answer if written.rowcount else None


def apply(change: Transition[R, A], ask: R, connection: sqlite3.Connection, now: int) -> A:
    """The answer, inside a transaction that lets nobody else write."""
    place = (ask.scope or "", ask.key)
    row = connection.execute(file.SELECT_ONE, place).fetchone()
    before = None if row is None else file.from_row(row)
    after, answer = change(before, ask, now)
    if after is before:
        return answer
    if before is None:
        connection.execute(file.INSERT, _first(after, ask))
    elif after is None:
        connection.execute(file.DELETE, place)
    else:
        statement = file.RESTART if after.created != before.created else file.UPDATE
        connection.execute(statement, (*file.changed(after, ask), *place))
    return answer


def _first(record: Record | None, ask: Request) -> tuple[object, ...]:
    """What INSERT needs: only a claim makes a record where there was none."""
    assert record is not None  # noqa: S101 - see above
    return file.new_row(record, cast("Claim", ask).ttl)
