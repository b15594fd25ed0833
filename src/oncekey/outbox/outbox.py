"""The outbox: messages that are committed with your data, and sent afterwards."""

# Generated from outbox_async.py by "make generate": do not edit.

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from oncekey.compat import call_blocking
from oncekey.errors import ConfigurationError
from oncekey.messages import rows
from oncekey.messages.connections.base import Connections, connections_of
from oncekey.messages.message import Message
from oncekey.messages.open_transaction import OpenTransaction
from oncekey.once import Once
from oncekey.outbox.routes import checked_patterns, matches
from oncekey.outbox.row import OutboxRow, Sender, id_from, new_row
from oncekey.outbox.statements import OUTBOX_SCHEMA, outbox_statements
from oncekey.outbox.table import DeadLetter, Figures, OutboxTable, Waiting
from oncekey.policy import SECOND, Duration, size

_log = logging.getLogger("oncekey.outbox")

LARGEST: Final = "960KiB"
"""NATS takes 1 MiB with its headers, unless its settings say otherwise."""


class Outbox:
    """Keeps messages in the transaction that they tell of. A relay sends them after the commit."""

    def __init__(
        self,
        target: str | Once,
        *,
        destinations: Iterable[str] | None = None,
        max_size: str | int = LARGEST,
    ) -> None:
        """Configure the outbox. The first use opens the connections.

        `target` is the URL of the database that has your data, PostgreSQL, MySQL, MariaDB or
        SQLite, or a `Once` whose store is there. It gets the table `outbox_messages`.
        `destinations` are the names that `put` accepts, or starts of names as in `"orders.*"`; any,
        unless you say so. `max_size` is how many bytes a message may have.
        """
        self._own = own_connections(target)
        self._table = OutboxTable(self._own)
        self._sql = outbox_statements(self._own.dialect)
        self._destinations = None if destinations is None else checked_patterns(destinations)
        self._largest = size(max_size, "max_size")

    def put(
        self,
        connection: Any,
        message: Message,
        *,
        to: str,
        key: str | None = None,
        after: Duration | None = None,
        sender: Sender | None = None,
    ) -> str:
        """Keep the message in the transaction of the connection. Return its id.

        It is sent if the transaction is committed, and not if it is rolled back. `to` is a subject,
        queue, stream or whatever the relay makes of it. Messages with one `key` are sent in the
        order of their commits, one after the other; their transactions wait for each other from
        here on. `after` delays a message that has no key.

        The id is that of the message, or else a new one. A second message with an id that is still
        in the outbox is not kept, and that is no error. `sender` is the attempt or the delivery
        that sends the message: the id is then its `downstream_key` for the id of the message as a
        name, or else for its place among the messages of this sender, so that an attempt which runs
        again makes no second message. Raise ConfigurationError if the connection
        is outside a transaction or leads elsewhere, or the message cannot be sent.
        """
        given = new_row(message, to=to, key=key, after=after, largest=self._largest)
        if sender is not None:
            given = replace(given, id=id_from(sender, message))
        self._check_destination(given.to)
        transaction = OpenTransaction(self._own, connection)
        transaction.begin()
        sql = self._sql
        statement = sql.put_prepared if transaction.connection.prepares() else sql.put
        if given.key is not None:
            statement = sql.put_in_order
        elif given.after:
            statement = sql.put_later
        values = self._values(given, transaction.identity)
        if not transaction.run(statement, values):
            (found,) = transaction.run(OUTBOX_SCHEMA.read, {}) or [(0, 0, "")]
            if rows.text(found[2]) != transaction.identity:
                raise transaction.elsewhere()
        return given.id

    def figures(self) -> Figures:
        """Return how much waits. The age of the oldest message is what to be alarmed by."""
        return call_blocking(self._table.figures)

    def waiting(self, *, limit: int = 100) -> list[Waiting]:
        """Return messages that are not sent yet, the oldest first."""
        return call_blocking(self._table.waiting, limit)

    def dead_letters(self, id: str = "", *, limit: int = 100) -> list[DeadLetter]:  # noqa: A002 - as Message has it
        """Return messages that are not tried any more, in the order in which they were put.

        With an id, only the message that has it.
        """
        return call_blocking(self._table.dead, limit, 0, id)

    def revive(self, letter: DeadLetter) -> bool:
        """Let a dead message be tried again, with its id.

        Return False if somebody has decided about it since it was read.
        """
        return call_blocking(self._table.revive, letter.message)

    def drop(self, letter: DeadLetter) -> bool:
        """Delete a dead message, so that those behind it are sent.

        Return False if somebody has decided about it since it was read.
        """
        return call_blocking(self._table.drop, letter.message)

    def edit(self, letter: DeadLetter, message: Message, *, to: str | None = None) -> str | None:
        """Send another message in the place of a dead one, with its key. Return the new id.

        The id is new, because consumers know a message that they have seen by it. If a try ended
        without an answer, the target may have the old message as well: a warning is logged. Return
        None if somebody has decided about the letter since it was read. Raise ConfigurationError
        if the message cannot be sent.
        """
        old = letter.message
        given = new_row(
            replace(message, id=""),
            to=to or old.to,
            key=old.key,
            after=None,
            largest=self._largest,
        )
        self._check_destination(given.to)
        if not call_blocking(self._table.edit, old, given):
            return None
        if letter.unknown:
            _log.warning(
                "%s was edited and is sent as %s; a try ended without an answer, so that consumers "
                "may get both",
                *(old.id, given.id),
            )
        return given.id

    def migrate(self) -> None:
        """Make the table or bring it up to date, which the first use would do otherwise."""
        call_blocking(self._own.identity)

    def close(self) -> None:
        """Close the outbox's own connections. The next use opens new ones."""
        call_blocking(self._own.close)

    def _check_destination(self, to: str) -> None:
        known = self._destinations
        if known is not None and not any(matches(one, to) for one in known):
            msg = f"{to!r} is none of the destinations of this outbox: {', '.join(known)}"
            raise ConfigurationError(msg)

    def _values(self, given: OutboxRow, identity: str) -> dict[str, Any]:
        return self._own.dialect.values(
            {"after": round(given.after * SECOND)},
            message_id=given.id,
            destination=given.to,
            key=given.key,
            message_type=given.type,
            attributes=given.attributes.decode(),
            body=given.body,
            identity=identity,
        )


def own_connections(target: str | Once) -> Connections:
    """Return connections to the database of the outbox. Raise ConfigurationError for others."""
    own = connections_of(target, OUTBOX_SCHEMA)
    if own is None:
        msg = (
            "an outbox needs PostgreSQL, MySQL, MariaDB or SQLite, where its messages are part of "
            "your transactions; give the URL of the database that has your data"
        )
        raise ConfigurationError(msg)
    return own
