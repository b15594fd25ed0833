"""Looking at records and changing them by hand: the twin of `admin.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from oncekey.admin_rules import PURGE_BATCH, Resolution, forgettable, place
from oncekey.core.record import Record, Status
from oncekey.core.requests import Forget, Scan, Verdict
from oncekey.engine.runtime import Core
from oncekey.observe import Event
from oncekey.stores.base import AsyncStore

_TRIES: Final = 8


class AsyncAdmin:
    """The verbs for people: get, scan, forget, resolve, purge."""

    def __init__(self, core: Core, store: AsyncStore) -> None:
        """The records of this store."""
        self._core = core
        self._store = store

    async def get(self, scope: str | None, key: str) -> Record | None:
        """The living record, if there is one."""
        return await self._store.get(*place(scope, key))

    async def scan(
        self, scope: str | None, *, any_scope: bool, status: Status | None
    ) -> AsyncIterator[Record]:
        """The living records in the order of scope and key."""
        ask = Scan(scope=scope, any_scope=any_scope, status=status)
        while True:
            page = await self._store.scan(ask)
            for record in page.records:
                yield record
            if page.after is None:
                return
            ask.after = page.after

    async def forget(self, scope: str | None, key: str, *, force: bool) -> bool:
        """The key is as if it had never been used; whether it had been."""
        identity = place(scope, key)
        for _ in range(_TRIES):  # a record that changes under our hands is read again
            record = await self._store.get(*identity)
            if record is None:
                return False
            forgettable(record, force=force)
            ask = Forget(*identity, token=record.token, force=force)
            if await self._store.forget(ask) is Verdict.DONE:
                self._core.forgotten(identity)
                return True
        return False

    async def resolve(self, scope: str | None, key: str, resolution: Resolution) -> bool:
        """The held record ends as said; False when it is not held, or not any more."""
        identity = place(scope, key)
        record = await self._store.get(*identity)
        if record is None or record.status != "held":
            return False
        return await self._store.resolve(resolution.request(record)) is Verdict.DONE

    async def purge(self, grace: int, progress: Callable[[int], None] | None) -> int:
        """What expired longer ago than the grace period is gone; how many records."""
        total = 0
        while True:
            count = await self._store.purge(grace, PURGE_BATCH)
            total += count
            if progress is not None:
                progress(total)
            if count:
                self._core.observers.hand(Event(name="purged", count=count))
            if count < PURGE_BATCH:
                return total
