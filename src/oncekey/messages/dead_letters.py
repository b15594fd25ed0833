"""The dead letters of an inbox by the URL of its database, for `oncekey dead-letters`.

Nothing is created here: neither the table nor the file.
"""

from __future__ import annotations

from msgspec import Struct

from oncekey.messages.purge import existing_table
from oncekey.messages.statements import as_micros


class DeadMessage(Struct, frozen=True, kw_only=True):
    """A message that has failed for good, and its history."""

    consumer: str
    key: str
    message_id: str
    message_type: str
    attempts: int
    error: str
    """The last error, in words."""
    first_seen: int
    """Times are microseconds since 1970."""
    died: int
    expires: int
    """When it is forgotten, so that a delivery would be processed again."""
    token: int


def dead_letters(
    url: str, *, consumer: str = "", key: str = "", limit: int = 100
) -> list[DeadMessage] | None:
    """Return the messages that have failed for good, the newest first. None without an inbox.

    An empty consumer or key means any.
    """
    with existing_table(url) as table:
        if table is None:
            return None
        return [
            DeadMessage(
                consumer=row[0],
                key=row[1],
                message_id=row[2],
                message_type=row[3],
                attempts=row[4],
                error=row[5] or "",
                first_seen=as_micros(row[6]),
                died=as_micros(row[7]),
                expires=as_micros(row[8]),
                token=row[9],
            )
            for row in table.dead(consumer, key, limit)
        ]


def free_dead_letter(url: str, letter: DeadMessage) -> bool:
    """Let the message be processed again when it is delivered, with all of its attempts.

    Return False if something has happened to it since it was read.
    """
    with existing_table(url) as table:
        return table is not None and table.free(letter.consumer, letter.key, letter.token)
