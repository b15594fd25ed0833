"""Many writes in one statement: claims of new keys, or settles of owners.

That is what most writes are, and neither needs to read a record first. One statement keeps the
interpreter free for others until all of it is on the disk. Where one of them turns out to be
something else, each is judged by itself: to be asked again harms none that was written.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from oncekey.core import machine
from oncekey.core.requests import Claim, Verdict
from oncekey.stores import sqlite_file as file

if TYPE_CHECKING:
    from oncekey.stores.sqlite_writer import Job

LARGEST: Final = 64
"""How many records one statement is about at most."""
_STEP: Final = 8


class Set(NamedTuple):
    """Jobs that one statement can write, and how: whether each has its value, and is written."""

    write: Callable[[sqlite3.Connection, list[Job], int], bool]
    jobs: list[Job]


def plain(jobs: list[Job]) -> list[Set]:
    """Those that can be written together.

    Two jobs about one record keep their order, and so are left to be done one after the other.
    """
    named = Counter([(job.ask.scope, job.ask.key) for job in jobs if job.ask is not None])
    claims: list[Job] = []
    ends: list[Job] = []
    for job in jobs:
        ask = job.ask
        if job.plain and ask is not None and named[ask.scope, ask.key] == 1:
            (claims if type(ask) is Claim else ends).append(job)
    return [
        Set(write, some[start : start + LARGEST])
        for write, some in ((_claim, claims), (_settle, ends))
        for start in range(0, len(some), LARGEST)
    ]


def padded(number: int) -> int:
    """How many records the statement for so many is about: few statements are kept prepared."""
    return number if number < _STEP else -(-number // _STEP) * _STEP


def _claim(connection: sqlite3.Connection, jobs: list[Job], now: int) -> bool:
    values: list[object] = []
    row: tuple[object, ...] = ()
    for job in jobs:
        ask: Any = job.ask
        record, job.value = machine.claim(None, ask, now)
        row = file.new_row(record, ask.ttl)
        values += row
    size = padded(len(jobs))
    values += row * (size - len(jobs))  # again, where it is by then
    return _written(connection, file.insert_many(size), values) == len(jobs)


def _settle(connection: sqlite3.Connection, jobs: list[Job], now: int) -> bool:
    asks: list[Any] = []
    for job in jobs:
        asks.append(job.ask)
        job.value = Verdict.DONE
    size = padded(len(jobs))
    values = file.settled_many(asks, now, size)
    return _written(connection, file.settle_many(size), values) == len(jobs)


def _written(connection: sqlite3.Connection, statement: str, values: list[object]) -> int:
    try:
        return connection.execute(statement, values).rowcount
    except file.UNFIT:  # before anything is written; whose it is will be seen
        return 0
