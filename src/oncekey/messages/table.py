"""The table `processed_messages` as a store, on the inbox's own connections.

So the engine, its chores and its observers serve leased messages as they serve calls.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

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
from oncekey.messages.errors import waited_too_long
from oncekey.messages.statements import Dialect, Values, statements

_TRIES: Final = 8


class Connections(Protocol):
    """Connections of the inbox's own, on which each statement is committed."""

    dialect: Dialect

    @property
    def known(self) -> str:
        """The identity, where it was asked for already; empty otherwise."""
        ...

    def run(self, statement: str, values: Values, *, keeper: bool = False) -> list[Any]:
        """What the statement answers."""
        ...

    def identity(self) -> str:
        """The identity of the database, whose schema is up to date from now on."""
        ...

    def found(self) -> str:
        """The identity; empty where the schema must be made in the transaction that needs it."""
        ...

    def close(self) -> None:
        """The connections are closed."""
        ...


class Table:
    """A store of messages. It keeps no notes, and nothing in it is held."""

    remote = True

    def __init__(self, own: Connections, grace: int) -> None:
        """Rows are purged when they expired so many microseconds ago."""
        self.own = own
        self.dialect = own.dialect
        self.sql = statements(own.dialect)
        self._grace = grace

    # The verbs

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        lives = rows.living(ask.lease, ask.ttl)
        identity = self.own.identity()
        for _ in range(_TRIES):
            # Each try has its own time: what was alive at the last one may be over by now.
            values = rows.of_claim(self.dialect, ask, identity, lives)
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
        msg = f"{ask.key!r} changes all the time; nothing was claimed"
        raise StoreError(msg, happened=False)

    def _locked(self, ask: Claim) -> Answer:
        """Somebody is completing it in a transaction that is not over."""
        now, before = self.read(ask.scope, ask.key)
        if before is None:
            before = machine.claim(None, ask, now)[0]
        return Busy(before, now)

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved. A row that is locked is not waited for."""
        if self.own.run(self.sql.renew, rows.of_renew(self.dialect, ask), keeper=True):
            return Verdict.DONE
        now, before = self.read(ask.scope, ask.key)
        verdict = machine.renew(before, ask, now)[1]
        if verdict is Verdict.DONE:
            msg = f"{ask.key!r} is locked by a transaction; its lease was not renewed"
            raise StoreError(msg, happened=False)
        return verdict

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        values = rows.of_settle(self.dialect, ask, self.own.identity())
        if self.own.run(self.sql.settle, values):
            return Verdict.DONE
        now, before = self.read(ask.scope, ask.key)
        return machine.settle(before, ask, now)[1]

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over. A row that is locked is left to the end of its lease."""
        if self.own.run(self.sql.release, rows.of_release(self.dialect, ask)):
            return Verdict.DONE
        now, before = self.read(ask.scope, ask.key)
        return machine.release(before, ask, now)[1]

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        now, before = self.read(ask.scope, ask.key)
        after, verdict = machine.forget(before, ask, now)
        if after is None and before is not None:
            values = rows.of_place(self.dialect, ask.scope, ask.key)
            gone = self.own.run(self.sql.forget, {**values, "token": before.token})
            return verdict if gone else Verdict.LOST
        return verdict

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        now, record = self.read(scope, key)
        return None if record is None or machine.expired(record, now) else record

    def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` rows that expired a grace period ago are gone; how many.

        Nobody can ask for less than the inbox's own grace period.
        """
        return self.purge_after(max(grace, self._grace), limit, keeper=True)

    def note(self, ask: Note, /) -> Verdict:
        """Refused: a message has no notes."""
        raise _without("notes", ask.key)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """Refused: a message is never held."""
        raise _without("held messages", ask.key)

    def scan(self, ask: Scan, /) -> Page:  # noqa: ARG002 - as every store has it
        """Refused: the table is there to be asked in SQL."""
        raise _without("a scan", "the inbox")

    def close(self) -> None:
        """The connections are closed. The next use opens new ones."""
        self.own.close()

    # What the inbox asks beside the verbs

    def read(self, scope: str | None, key: str) -> tuple[int, Record | None]:
        """The time of the database, and the record as it is committed, expired or not."""
        self.own.identity()
        found = self.own.run(self.sql.read, rows.of_place(self.dialect, scope, key))
        _, now, record = rows.read(found[0], scope, key)
        return now, record

    def undone(self, ask: Release) -> bool:
        """Whether the transaction that completed the message was rolled back; it is free then.

        False also while that transaction is open: it has the row, or the file, locked.
        """
        _, before = self.read(ask.scope, ask.key)
        if before is None or before.status != "running" or before.token != ask.token:
            return False
        try:
            return bool(
                self.own.run(self.sql.release, rows.of_release(self.dialect, ask), keeper=True)
            )
        except StoreError:
            return False

    def count(self, ask: Claim, *, attempt: int, error: bytes, dead: bool) -> None:
        """An attempt that was rolled back is on record, as one that may be made again or not."""
        values = rows.of_count(
            self.dialect, ask, self.own.identity(), attempt=attempt, error=error, dead=dead
        )
        self.own.run(self.sql.count, values)

    def purge_after(self, grace: int, limit: int, *, keeper: bool = False) -> int:
        """At most `limit` rows that expired `grace` microseconds ago are gone; how many."""
        self.own.identity()
        values = self.dialect.values({"grace": grace}, limit=limit)
        return len(self.own.run(self.sql.purge, values, keeper=keeper))

    def due(self, grace: int) -> int:
        """How many rows a purge would remove."""
        self.own.identity()
        ((count,),) = self.own.run(self.sql.due, self.dialect.values({"grace": grace}))
        return int(count)


def _without(what: str, key: str) -> ConfigurationError:
    return ConfigurationError(f"the table processed_messages has no {what} ({key})")
