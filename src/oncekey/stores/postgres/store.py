"""Records in PostgreSQL 14 or newer, shared by any number of machines.

Every verb is one prepared statement and one round trip. Time is the server's. The rules are in
`sql/`, which a store brings up to date when it first connects.
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
from oncekey.stores.postgres import statements as sql
from oncekey.stores.postgres.address import Target
from oncekey.stores.postgres.connections import PerProcess
from oncekey.stores.postgres.listen import Watch
from oncekey.stores.postgres.pool import Link
from oncekey.stores.postgres.rows import to_answer, to_number, to_page, to_record, to_verdict

if TYPE_CHECKING:
    from typing import Any

    from psycopg import Connection
    from psycopg_pool import ConnectionPool

    from oncekey.stores.base import AsyncStore


class PostgresStore:
    """A store in a PostgreSQL database, for code that blocks.

    Connections belong to one process, so a forked child has some of its own.
    """

    remote = True

    def __init__(
        self,
        conninfo: str | ConnectionPool[Any] | Connection[Any],
        *,
        size: int = 10,
        patience: Duration = "5s",
        timeout: Duration = "5s",
        listen: bool = True,
        fast: bool = True,
    ) -> None:
        """Nothing is opened before the first use.

        `conninfo` is a URL, a conninfo string, or a pool or a connection of the caller, which stays
        the caller's to close. `size` is the most connections that verbs will use; `patience` how
        long a caller waits for one, `timeout` how long for an answer on one of ours. Without
        `listen` a waiting caller asks again and again instead of being woken. Without `fast` every
        task of a loop asks alone, instead of sharing a statement with others.
        """
        self._target = Target.of(conninfo, size, patience, timeout, listen=listen, fast=fast)
        self._links = PerProcess(partial(Link, self._target))
        self._watches = PerProcess(partial(Watch, self._target))

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record. A claim that changes nothing writes nothing."""
        rows = self._links.here().run(sql.CLAIM, sql.of_claim(ask))
        return to_answer(rows[0], ask)

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        rows = self._links.here().run(sql.RENEW, sql.of_renew(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        rows = self._links.here().run(sql.NOTE, sql.of_note(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        rows = self._links.here().run(sql.SETTLE, sql.of_settle(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        rows = self._links.here().run(sql.RELEASE, sql.of_release(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        rows = self._links.here().run(sql.RESOLVE, sql.of_resolve(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        rows = self._links.here().run(sql.FORGET, sql.of_forget(ask))
        return to_verdict(rows[0], ask.scope, ask.key)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        rows = self._links.here().run(sql.GET, sql.of_get(scope, key))
        return to_record(rows[0]) if rows else None

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        rows = self._links.here().run(sql.SCAN, sql.of_scan(ask))
        return to_page(rows, ask.limit)

    def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` records that expired `grace` microseconds ago are gone; how many.

        What another connection holds at this moment is left for the next time.
        """
        rows = self._links.here().run(sql.PURGE, sql.of_purge(grace, limit))
        return to_number(rows[0])

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """The record may not be running any more under the token, or so many seconds are over."""
        self._watches.here().until_changed(scope, key, token, seconds)

    def close(self) -> None:
        """The connections are closed. The next use opens new ones."""
        self._links.here().close()
        self._watches.here().close()

    def as_async(self) -> AsyncStore:
        """Return the same store for coroutines, on threads where the connections are yours."""
        from oncekey.stores.adapters import Threaded
        from oncekey.stores.postgres.store_async import AsyncPostgresStore

        target = self._target
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
