"""Purging of an inbox's table by the URL of its database, for `oncekey purge`.

Nothing is created here: neither the table nor the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from oncekey.messages.connections.base import connections_of
from oncekey.messages.connections.sqlite import SQLiteConnections
from oncekey.messages.inbox import PURGE_BATCH
from oncekey.messages.rules import DEFAULT_GRACE
from oncekey.messages.schema import INBOX_SCHEMA
from oncekey.messages.table import Table
from oncekey.policy import Duration, microseconds, seconds


def due_messages(url: str, *, grace: Duration = DEFAULT_GRACE) -> int | None:
    """Return how many rows expired longer ago than `grace`, or None if there is no inbox."""
    since = _since(grace)
    with existing_table(url) as table:
        return None if table is None else table.due(since)


def purge_messages(
    url: str, *, grace: Duration = DEFAULT_GRACE, progress: Callable[[int], None] | None = None
) -> int:
    """Delete rows that expired longer ago than `grace`. Return how many, 0 if there is no inbox.

    Rows are deleted in batches, each in its own transaction. `progress` is called with the total
    after each.
    """
    since = _since(grace)
    total = 0
    with existing_table(url) as table:
        while table is not None:
            count = table.purge_after(since, PURGE_BATCH)
            total += count
            if progress is not None:
                progress(total)
            if count < PURGE_BATCH:
                break
    return total


def _since(grace: Duration) -> int:
    return microseconds(seconds(grace, "grace", zero=True))


@contextmanager
def existing_table(url: str) -> Iterator[Table | None]:
    """Yield the table of the inbox, or None if the database has none."""
    own = connections_of(url, INBOX_SCHEMA)
    if own is None or (isinstance(own, SQLiteConnections) and not own.path.exists()):
        yield None
        return
    try:
        ((ours, _),) = own.run(INBOX_SCHEMA.find(own.dialect), {})
        yield Table(own, 0) if ours else None
    finally:
        own.close()
