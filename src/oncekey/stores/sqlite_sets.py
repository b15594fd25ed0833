"""Many writes of one transaction in few statements: claims of new keys, and settles of owners.

That is what most writes are, and neither needs to read a record first. Where one of them turns out
to be something else, nothing of this is kept, and each is judged by itself.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import TYPE_CHECKING, cast

from oncekey import machine
from oncekey.stores import sqlite_file as file
from oncekey.verbs import Claim, Verdict

if TYPE_CHECKING:
    from oncekey.stores.sqlite_writer import Job
    from oncekey.verbs import Settle


def plain(jobs: list[Job]) -> list[Job]:
    """Those that can be written together.

    Two jobs about one record keep their order, and so are left to be done one after the other.
    """
    named = Counter([(job.ask.scope, job.ask.key) for job in jobs if job.ask is not None])
    return [
        job
        for job in jobs
        if job.plain and job.ask is not None and named[job.ask.scope, job.ask.key] == 1
    ]


def write(connection: sqlite3.Connection, jobs: list[Job], now: int) -> bool:
    """Whether each has its value, and all are written; otherwise the transaction must not last."""
    rows: list[tuple[object, ...]] = []
    ends: list[tuple[object, ...]] = []
    for job in jobs:
        ask = job.ask
        if isinstance(ask, Claim):
            record, job.value = machine.claim(None, ask, now)
            rows.append(file.new_row(record))
        else:
            job.value = Verdict.DONE
            ends.append(file.settled(cast("Settle", ask), now))
    try:
        return _inserted(connection, rows) == len(rows) and _settled(connection, ends) == len(ends)
    except file.UNFIT:  # whose it is will be seen
        return False


def _inserted(connection: sqlite3.Connection, rows: list[tuple[object, ...]]) -> int:
    count, start = 0, 0
    while len(rows) - start >= file.MANY:
        values = [value for row in rows[start : start + file.MANY] for value in row]
        count += connection.execute(file.INSERT_MANY, values).rowcount
        start += file.MANY
    rest = rows[start:]
    return count + connection.executemany(file.INSERT, rest).rowcount if rest else count


def _settled(connection: sqlite3.Connection, ends: list[tuple[object, ...]]) -> int:
    return connection.executemany(file.SETTLE, ends).rowcount if ends else 0
