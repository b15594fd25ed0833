"""The inbox for code that blocks. Its twin awaits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Final, Unpack

from oncekey.messages.atomic import Atomic
from oncekey.messages.desk import DeadLetterBox, Settings, here, open_desk
from oncekey.messages.identity import message_of
from oncekey.messages.keys import KeyOfMessage, OnMissingKey, by_message_id
from oncekey.messages.leased import Leased
from oncekey.messages.marks import Claim, Marks
from oncekey.messages.rules import DEFAULT_GRACE, Fingerprint
from oncekey.observe import Observer
from oncekey.once import Once
from oncekey.policy import Duration, Policy, PolicyFields, microseconds, seconds

PURGE_BATCH: Final = 1000


class Inbox(Marks):
    """Makes a message that is delivered twice be processed once, for one consumer."""

    def __init__(  # noqa: PLR0913 - each is a setting of its own, and all have defaults
        self,
        target: str | Once,
        consumer: str,
        *,
        key: KeyOfMessage = by_message_id,
        on_missing_key: OnMissingKey = "error",
        fingerprint: Fingerprint | None = None,
        dead_letter: DeadLetterBox | None = None,
        lock_timeout: Duration | None = None,
        grace: Duration = DEFAULT_GRACE,
        observers: Iterable[Observer] | None = None,
        policy: Policy | None = None,
        **fields: Unpack[PolicyFields],
    ) -> None:
        """Nothing is opened before the first use.

        `target` is a `Once`, or the URL of the database that has your data: PostgreSQL and SQLite
        get the table `processed_messages`, other stores serve leased mode. `dead_letter` is told
        of each message that failed `max_attempts` times. `lock_timeout` is how long a duplicate
        waits in atomic mode; rows stay for `grace` after they expired.
        """
        self._desk = open_desk(
            target,
            consumer,
            Settings(
                key=key,
                on_missing_key=on_missing_key,
                fingerprint=fingerprint,
                dead_letter=dead_letter,
                lock_timeout=lock_timeout,
                grace=grace,
                observers=observers,
                policy=policy,
                fields=fields,
            ),
        )
        self._grace = grace
        self._owned: dict[str, Claim] = {}

    def for_consumer(self, consumer: str) -> Inbox:
        """The same inbox for another consumer: settings and connections are shared."""
        other = copy(self)
        other._desk = self._desk.for_consumer(consumer)  # noqa: SLF001 - of this class
        other._owned = {}  # noqa: SLF001 - of this class
        return other

    def atomic(self, connection: Any, message: Any, *, returns: object = None) -> Atomic:  # noqa: ANN401 - of any driver and broker
        """A block of one transaction with your work: `with inbox.atomic(...) as delivery`.

        The connection must be inside a transaction. A concurrent duplicate waits for the end of
        it, and then has the result. `returns` is the type of the result, where it is more than
        plain values.
        """
        return Atomic(self._desk, connection, message_of(message), returns)

    def leased(self, message: Any, *, returns: object = None) -> Leased:  # noqa: ANN401 - of any broker
        """A block whose claim is committed first: `with inbox.leased(message) as delivery`.

        For work that is long or has effects elsewhere. Complete it in your own transaction with
        `delivery.complete(result, connection=...)`.
        """
        return Leased(self._desk, message_of(message), returns)

    def migrate(self) -> None:
        """The table is there and up to date, which the first use would see to otherwise."""
        here(self._desk.tables("migrate").own.identity)

    def purge(
        self, *, grace: Duration | None = None, progress: Callable[[int], None] | None = None
    ) -> int:
        """What expired longer ago than `grace` is gone; how many rows.

        `progress` hears the count after each batch.
        """
        table = self._desk.tables("purge")
        chosen = self._grace if grace is None else grace
        since = microseconds(seconds(chosen, "grace", zero=True))
        total = 0
        while True:
            count = here(table.purge_after, since, PURGE_BATCH)
            total += count
            if progress is not None:
                progress(total)
            if count < PURGE_BATCH:
                return total

    def close(self) -> None:
        """The inbox's own connections are closed. The next use opens new ones."""
        self._desk.once.close()
