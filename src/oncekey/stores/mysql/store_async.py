"""Records in MariaDB 10.6 or newer or MySQL 8 or newer, shared by any number of machines.

Every verb is one CALL and one round trip, and the time is the server's. The rules are procedures in
`sql/`; a store migrates the database when it first connects.
"""

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
from oncekey.stores.connections import PerLoop
from oncekey.stores.mysql import statements as sql
from oncekey.stores.mysql.address import MySQLTarget
from oncekey.stores.mysql.batch import AsyncMySQLCrowd
from oncekey.stores.mysql.rows import to_activity, to_answer, to_page, to_record, to_verdict

if TYPE_CHECKING:
    from oncekey.stores.sqlalchemy import AnyEngine

    if False:  # sync only
        from oncekey.stores.base import AsyncStore


class AsyncMySQLStore:
    """A store in a MySQL or MariaDB database, for coroutines.

    Connections belong to one event loop, so each loop that asks has some of its own.
    """

    remote = True
    sends_once = True

    def __init__(
        self,
        url: str | AnyEngine,
        *,
        size: int = 10,
        patience: Duration = "5s",
        timeout: Duration = "5s",
        fast: bool = True,
    ) -> None:
        """Check the options. Connections are opened at the first use.

        `url` is `mysql://user@host/database` or `mariadb://...`, or an engine of SQLAlchemy for
        MariaDB, which the caller closes. `size` is the largest number of connections; `patience` is
        how long a caller waits for a free one, `timeout` how long for an answer. Without `fast`
        every task of a loop runs its own statement, instead of sharing one.
        """
        self.target = MySQLTarget.of(url, size, patience, timeout, fast=fast)
        self.links = PerLoop(partial(AsyncMySQLCrowd, self.target))

    async def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not. Write only if something changes."""
        # async only
        rows = await self.links.here().claim(ask)
        if False:  # sync only
            rows = self.links.here().run(sql.claim(ask))
        return to_answer(rows[0], ask)

    async def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        rows = await self.links.here().run(sql.renew(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    async def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        rows = await self.links.here().run(sql.note(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    async def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer.

        A result that the server would not read is left out, so that the operation is completed.
        """
        # async only
        rows = await self.links.here().settle(ask)
        if False:  # sync only
            smaller = partial(sql.settle_without, ask)
            rows = self.links.here().run(sql.settle(ask), smaller)
        return to_verdict(rows[0], ask.scope, ask.key)

    async def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        rows = await self.links.here().run(sql.release(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        rows = await self.links.here().run(sql.resolve(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    async def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        rows = await self.links.here().run(sql.forget(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        rows = await self.links.here().run(sql.get(scope, key))
        return to_record(rows[0]) if rows else None

    async def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        rows = await self.links.here().run(sql.scan(ask))
        return to_page(rows, ask.limit)

    async def purge(self, grace: int, limit: int, /) -> int:
        """Remove at most `limit` records that expired `grace` microseconds ago. Return how many.

        Rows that another connection has locked are left for the next time.
        """
        rows = await self.links.here().run(sql.purge(grace, limit))
        number: int = rows[0][0]
        return number

    async def restore(self, record: Record, /) -> bool:
        """Keep a record of another store, unless there is one."""
        rows = await self.links.here().run(sql.restore(record))
        return to_verdict(rows[0], record.scope, record.key) is Verdict.DONE

    async def audit(self, entry: bytes, /) -> None:
        """Add an entry to the audit trail."""
        await self.links.here().run(sql.audit(entry))

    async def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries of the audit trail, each with its time."""
        return [(at, entry) for at, entry in await self.links.here().run(sql.audited(limit))]

    async def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of that moment."""
        await self.links.here().run(sql.add_activity(counts, ago))

    async def activity(self) -> Activity:
        """Return the sums that are kept."""
        return to_activity(await self.links.here().run(sql.ACTIVITY))

    async def aclose(self) -> None:
        """Close the connections of this loop. The next use opens new ones."""
        await self.links.here().close()

    if False:  # sync only

        def as_async(self) -> AsyncStore:
            """Return the store for coroutines, on threads if the connections are an engine's."""
            from oncekey.stores.adapters import Threaded
            from oncekey.stores.mysql.store_async import AsyncMySQLStore

            target = self.target
            if target.given is not None:
                return Threaded(self)
            return AsyncMySQLStore(
                target.url,
                size=target.size,
                patience=target.patience,
                timeout=target.timeout,
                fast=target.fast,
            )
