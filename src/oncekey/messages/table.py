"""The table `processed_messages` as a store, on the inbox's own connections.

With it the engine, its chores and its observers handle leased messages as they handle calls.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from oncekey.core import machine
from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Busy,
    Claim,
    Forget,
    Granted,
    Note,
    Page,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.errors import ConfigurationError, StoreError
from oncekey.messages import rows
from oncekey.messages.connections.base import Connections
from oncekey.messages.errors import waited_too_long
from oncekey.messages.statements import statements

_TRIES: Final = 8


class Table:
    """A store of messages. It keeps no notes, and nothing in it is held."""

    remote = True

    def __init__(self, own: Connections, grace: int) -> None:
        """Set the grace period: the microseconds for which rows stay after they expired."""
        self.own = own
        self.dialect = own.dialect
        self.sql = statements(own.dialect)
        self._grace = grace

    # The requests of a store

    def claim(self, ask: Claim, /) -> Answer:
        """Claim the record."""
        lives = rows.living(ask.lease, ask.ttl)
        identity = self.own.identity()
        for _ in range(_TRIES):
            # Each try has its own time: a lease that was alive at the last try may be over by now.
            values = partial(rows.of_claim, self.dialect, ask, identity, lives)
            try:
                found = self.own.run(self.sql.claim_alone, values)
            except StoreError as error:
                if not waited_too_long(error):
                    raise
                return self._locked(ask)
            if found:
                record = rows.granted(found[0], ask, lives)
                return Granted(record, record.started)
            now, before = self.read(ask.scope, ask.key)
            if before is not None:
                after, answer = machine.claim(before, ask, now)
                if after is before:  # otherwise it has become free since
                    return answer
        msg = f"{ask.key!r} was changed by others again and again; nothing was claimed"
        raise StoreError(msg, happened=False)

    def _locked(self, ask: Claim) -> Answer:
        """Return Busy: another transaction, still open, is completing the message."""
        now, before = self.read(ask.scope, ask.key)
        if before is None:
            before = machine.claim(None, ask, now)[0]
        return Busy(before, now)

    def renew(self, ask: Renew, /) -> Verdict:
        """Renew the owner's lease. Raise StoreError instead of waiting for a locked row."""
        if self.own.run(self.sql.renew, partial(rows.of_renew, self.dialect, ask), keeper=True):
            return Verdict.DONE
        now, before = self.read(ask.scope, ask.key)
        verdict = machine.renew(before, ask, now)[1]
        if verdict is Verdict.DONE:
            msg = f"{ask.key!r} is locked by a transaction; its lease was not renewed"
            raise StoreError(msg, happened=False)
        return verdict

    def settle(self, ask: Settle, /) -> Verdict:
        """Keep the owner's result or failure."""
        values = partial(rows.of_settle, self.dialect, ask, self.own.identity())
        if self.own.run(self.sql.settle, values):
            return Verdict.DONE
        now, before = self.read(ask.scope, ask.key)
        verdict = machine.settle(before, ask, now)[1]
        if verdict is Verdict.DONE and not self.own.run(self.sql.confirm, values):
            return Verdict.LOST  # it expired, and was purged
        return verdict

    def release(self, ask: Release, /) -> Verdict:
        """End the owner's claim. Leave a locked row to the end of its lease."""
        if self.own.run(self.sql.release, partial(rows.of_release, self.dialect, ask)):
            return Verdict.DONE
        now, before = self.read(ask.scope, ask.key)
        return machine.release(before, ask, now)[1]

    def forget(self, ask: Forget, /) -> Verdict:
        """Delete the record."""
        now, before = self.read(ask.scope, ask.key)
        after, verdict = machine.forget(before, ask, now)
        if after is None and before is not None:
            values = rows.of_place(self.dialect, ask.scope, ask.key)
            gone = self.own.run(self.sql.forget, {**values, "token": before.token})
            return verdict if gone else Verdict.LOST
        return verdict

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        now, record = self.read(scope, key)
        return None if record is None or machine.expired(record, now) else record

    def purge(self, grace: int, limit: int, /) -> int:
        """Delete at most `limit` rows that expired `grace` microseconds ago. Return how many.

        A shorter grace period than the inbox's own is not used.
        """
        return self.purge_after(max(grace, self._grace), limit, keeper=True)

    def note(self, ask: Note, /) -> Verdict:
        """Raise ConfigurationError: a message has no notes."""
        raise _without("notes", ask.key)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """Raise ConfigurationError: a message is never held."""
        raise _without("held messages", ask.key)

    def scan(self, ask: Scan, /) -> Page:  # noqa: ARG002 - as every store has it
        """Raise ConfigurationError: query the table with SQL instead."""
        raise _without("a scan", "the inbox")

    def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        self.own.close()

    # Further queries of the inbox

    def read(self, scope: str | None, key: str) -> tuple[int, Record | None]:
        """Return the time of the database, and the committed record, expired or not, or None."""
        self.own.identity()
        found = self.own.run(self.sql.read, rows.of_place(self.dialect, scope, key))
        _, now, record = rows.read(found[0], scope, key)
        return now, record

    def undone(self, ask: Release) -> bool:
        """Return whether the transaction that completed the message was rolled back.

        If so, release the message. Return False also while that transaction is open: it has the
        row, or the file, locked.
        """
        _, before = self.read(ask.scope, ask.key)
        if before is None or before.status != "running" or before.token != ask.token:
            return False
        values = partial(rows.of_release, self.dialect, ask)
        try:
            return bool(self.own.run(self.sql.release, values, keeper=True))
        except StoreError:
            return False

    def count(
        self, ask: Claim, *, attempt: int, error: bytes, dead: bool, letter: bytes | None
    ) -> None:
        """Record an attempt that was rolled back.

        `dead` says that it was the last one, and `letter` is the message then.
        """
        identity = self.own.identity()
        values = partial(rows.of_count, attempt=attempt, error=error, dead=dead, letter=letter)
        self.own.run(self.sql.count, partial(values, self.dialect, ask, identity))

    def purge_after(self, grace: int, limit: int, *, keeper: bool = False) -> int:
        """Delete at most `limit` rows that expired `grace` microseconds ago. Return how many."""
        self.own.identity()
        values = partial(self.dialect.values, {"grace": grace}, limit=limit)
        return len(self.own.run(self.sql.purge, values, keeper=keeper))

    def dead(self, consumer: str, key: str, limit: int) -> list[Any]:
        """Return the rows of messages that have failed for good, the newest first.

        An empty consumer or key means any.
        """
        self.own.identity()
        values = self.dialect.values({}, consumer=consumer, key=key, limit=limit)
        return self.own.run(self.sql.dead, values)

    def free(self, consumer: str, key: str, token: int) -> bool:
        """Let a message that has failed for good be processed again. Return whether it was so."""
        values = partial(self.dialect.values, {}, consumer=consumer, key=key, token=token)
        return bool(self.own.run(self.sql.free, values))

    def due(self, grace: int) -> int:
        """Return how many rows a purge would remove."""
        self.own.identity()
        ((count,),) = self.own.run(self.sql.due, self.dialect.values({"grace": grace}))
        return int(count)


def _without(what: str, key: str) -> ConfigurationError:
    return ConfigurationError(f"the table processed_messages has no {what} ({key})")
