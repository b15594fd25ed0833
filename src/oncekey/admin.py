"""Looking at records and changing them by hand. Its twin awaits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from oncekey.admin_rules import PURGE_BATCH, Resolution, forgettable, place
from oncekey.core.record import Record, Status
from oncekey.core.requests import Forget, Scan, Verdict
from oncekey.engine.runtime import Core
from oncekey.observe import Event
from oncekey.stores.base import Store

_TRIES: Final = 8


class Admin:
    """The verbs for people: get, scan, forget, resolve, purge."""

    def __init__(self, core: Core, store: Store) -> None:
        """The records of this store."""
        self._core = core
        self._store = store

    def get(self, scope: str | None, key: str) -> Record | None:
        """The living record, if there is one."""
        return self._store.get(*place(scope, key))

    def scan(
        self, scope: str | None, *, any_scope: bool, status: Status | None
    ) -> Iterator[Record]:
        """The living records in the order of scope and key."""
        ask = Scan(scope=scope, any_scope=any_scope, status=status)
        while True:
            page = self._store.scan(ask)
            for record in page.records:  # noqa: UP028 - the twin cannot `yield from`
                yield record
            if page.after is None:
                return
            ask.after = page.after

    def forget(self, scope: str | None, key: str, *, force: bool) -> bool:
        """The key is as if it had never been used; whether it had been."""
        identity = place(scope, key)
        for _ in range(_TRIES):  # a record that changes under our hands is read again
            record = self._store.get(*identity)
            if record is None:
                return False
            forgettable(record, force=force)
            ask = Forget(*identity, token=record.token, force=force)
            if self._store.forget(ask) is Verdict.DONE:
                self._core.forgotten(identity)
                return True
        return False

    def resolve(self, scope: str | None, key: str, resolution: Resolution) -> bool:
        """The held record ends as said; False when it is not held, or not any more."""
        identity = place(scope, key)
        record = self._store.get(*identity)
        if record is None or record.status != "held":
            return False
        return self._store.resolve(resolution.request(record)) is Verdict.DONE

    def purge(self, grace: int, progress: Callable[[int], None] | None) -> int:
        """What expired longer ago than the grace period is gone; how many records."""
        total = 0
        while True:
            count = self._store.purge(grace, PURGE_BATCH)
            total += count
            if progress is not None:
                progress(total)
            if count:
                self._core.observers.hand(Event(name="purged", count=count))
            if count < PURGE_BATCH:
                return total
