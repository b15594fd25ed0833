"""The SQL statements of the outbox, one text for each database."""

from __future__ import annotations

from functools import cache
from typing import Final

from msgspec import Struct

from oncekey.messages.schema import Schema
from oncekey.messages.statements import Dialect

OUTBOX_SCHEMA: Final = Schema(
    table="outbox_messages",
    owner="outbox",
    package="oncekey.outbox",
    lock=7886477261459485031,
)


class OutboxStatements(Struct, frozen=True, kw_only=True):
    """All statements on `outbox_messages`."""

    put: str
    """A message without a key."""
    put_in_order: str
    """A message with a key, whose number is drawn when no open transaction has the key."""


@cache
def outbox_statements(dialect: Dialect) -> OutboxStatements:
    """Return the statements for one kind of database."""

    def said(text: str) -> str:
        return text.format(
            text="text",
            octets=dialect.octets,
            moment=dialect.moment,
            after_alone=dialect.alone("after"),
        )

    # SQLite has one writer at a time, so that numbers are in the order of commits anyway.
    in_order = _PUT if dialect.name == "sqlite" else _PUT_IN_ORDER
    return OutboxStatements(put=said(_PUT), put_in_order=said(in_order))


_PUT: Final = """
INSERT INTO outbox_messages (message_id, destination, message_key, message_type, attributes, body,
    created_at, due_at)
SELECT CAST(:message_id AS {text}), CAST(:destination AS {text}), CAST(:key AS {text}),
    CAST(:message_type AS {text}), CAST(:attributes AS {text}), CAST(:body AS {octets}),
    {moment}, {after_alone}
FROM outbox_messages_schema WHERE identity = CAST(:identity AS {text})
ON CONFLICT (message_id) DO NOTHING
RETURNING number
"""

# The lock is kept to the end of the transaction. The row comes from what took it, so that the
# number is drawn after that. Drawn before, it could be lower than one that was committed already.
_PUT_IN_ORDER: Final = _PUT.replace(
    "\nINSERT",
    """
WITH turn AS MATERIALIZED (
    SELECT CAST(pg_advisory_xact_lock(hashtextextended(CAST(:key AS {text}), 25)) AS {text})
        AS taken
)
INSERT""",
).replace(
    "FROM outbox_messages_schema WHERE",
    "FROM turn CROSS JOIN outbox_messages_schema WHERE turn.taken IS NOT NULL AND",
)
