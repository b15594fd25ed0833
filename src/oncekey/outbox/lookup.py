"""The outbox that a database has, for those who look at it and decide about its dead letters.

Nothing is created here: neither the table nor the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from oncekey.messages.connections.base import connections_of
from oncekey.messages.connections.sqlite import SQLiteConnections
from oncekey.once import Once
from oncekey.outbox.outbox import Outbox
from oncekey.outbox.statements import OUTBOX_SCHEMA


@contextmanager
def existing_outbox(target: str | Once) -> Iterator[Outbox | None]:
    """Yield the outbox of the database, or None if there is none."""
    own = connections_of(target, OUTBOX_SCHEMA)
    if own is None or (isinstance(own, SQLiteConnections) and not own.path.exists()):
        yield None
        return
    try:
        ((ours, _),) = own.run(OUTBOX_SCHEMA.find(own.dialect), {})
    finally:
        own.close()
    if not ours:
        yield None
        return
    outbox = Outbox(target)
    try:
        yield outbox
    finally:
        outbox.close()
