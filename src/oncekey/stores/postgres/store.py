"""Records in PostgreSQL 14 or newer, shared by any number of machines.

Every verb is one prepared statement and one round trip, and the time is the server's. The rules are
functions in `sql/`; a store migrates the database when it first connects.
"""

# Generated from store_async.py by "make generate": do not edit.

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.policy import Duration
from oncekey.stores.activity import Activity, Counts
from oncekey.stores.connections import PerProcess
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.listen import Watch
from oncekey.stores.postgres.pool import Link
from oncekey.stores.postgres.rows import (
    to_activity,
    to_answer,
    to_entries,
    to_number,
    to_page,
    to_record,
    to_verdict,
)

if TYPE_CHECKING:
    from typing import Any

    from psycopg import Connection
    from psycopg_pool import ConnectionPool

    from oncekey.stores.base import AsyncStore
    from oncekey.stores.sqlalchemy import AnyEngine


class PostgresStore:
    """A store in a PostgreSQL database, for code that blocks.

    Connections belong to one process, so a forked child has some of its own.
    """

    remote = True
    sends_once = True

    def __init__(
        self,
        conninfo: str | ConnectionPool[Any] | Connection[Any] | AnyEngine,
        *,
        size: int = 10,
        patience: Duration = "5s",
        timeout: Duration = "5s",
        listen: bool = True,
        fast: bool = True,
    ) -> None:
        """Check the options. Connections are opened at the first use.

        `conninfo` is a URL, a conninfo string, or a pool, a connection or an engine of SQLAlchemy
        of the caller, which the caller closes. `size` is the largest number of connections for
        verbs; `patience` is how long a caller waits for a free one, `timeout` how long for an
        answer on one of ours. Without `listen` a waiting caller polls instead of being woken.
        Without `fast` every task of a loop runs its own statement, instead of sharing one.
        """
        self.target = Target.of(conninfo, size, patience, timeout, listen=listen, fast=fast)
        self.links = PerProcess(partial(Link, self.target))
        self._watches = PerProcess(partial(Watch, self.target))

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not. Write only if something changes."""
        rows = self.links.here().run(sql.CLAIM, sql.of_claim(ask))
        return to_answer(rows[0], ask)

    def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        rows = self.links.here().run(sql.RENEW, sql.of_renew(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        rows = self.links.here().run(sql.NOTE, sql.of_note(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        rows = self.links.here().run(sql.SETTLE, sql.of_settle(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        rows = self.links.here().run(sql.RELEASE, sql.of_release(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        rows = self.links.here().run(sql.RESOLVE, sql.of_resolve(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        rows = self.links.here().run(sql.FORGET, sql.of_forget(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        rows = self.links.here().run(sql.GET, sql.of_get(scope, key))
        return to_record(rows[0]) if rows else None

    def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        rows = self.links.here().run(sql.SCAN, sql.of_scan(ask))
        return to_page(rows, ask.limit)

    def purge(self, grace: int, limit: int, /) -> int:
        """Remove at most `limit` records that expired `grace` microseconds ago. Return how many.

        Rows that another connection has locked are left for the next time.
        """
        rows = self.links.here().run(sql.PURGE, sql.of_purge(grace, limit))
        return to_number(rows[0])

    def restore(self, record: Record, /) -> bool:
        """Keep a record of another store, unless there is one."""
        rows = self.links.here().run(sql.RESTORE, sql.of_restore(record))
        return to_verdict(rows[0], record.scope, record.key) is Verdict.DONE

    def audit(self, entry: bytes, /) -> None:
        """Add an entry to the audit trail."""
        self.links.here().run(sql.AUDIT, (entry,))

    def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries of the audit trail, each with its time."""
        return to_entries(self.links.here().run(sql.AUDITED, sql.of_audited(limit)))

    def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of that moment."""
        self.links.here().run(sql.ADD_ACTIVITY, sql.of_activity(counts, ago))

    def activity(self) -> Activity:
        """Return the sums that are kept."""
        return to_activity(self.links.here().run(sql.ACTIVITY, ()))

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """Wait until the record may not be running under this token, or `seconds` are over."""
        self._watches.here().until_changed(scope, key, token, seconds)

    def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        self.links.here().close()
        self._watches.here().close()

    def as_async(self) -> AsyncStore:
        """Return the store for coroutines, on threads if the connections are the caller's."""
        from oncekey.stores.adapters import Threaded
        from oncekey.stores.postgres.store_async import AsyncPostgresStore

        target = self.target
        if target.given is not None:
            return Threaded(self)
        return AsyncPostgresStore(
            target.conninfo,
            size=target.size,
            patience=target.patience,
            timeout=target.timeout,
            listen=target.listen,
            fast=target.fast,
        )
