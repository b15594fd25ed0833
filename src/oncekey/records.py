"""Read and change records by hand: get, scan, forget, resolve, purge.

`Records` is for blocking code and `AsyncRecords` for coroutines. Their code is the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, Literal

from msgspec import Struct

from oncekey.core.audit import Action, AuditEntry
from oncekey.core.call import Identity
from oncekey.core.codec import PLAIN, Codec, NotKeepableError, encode_error
from oncekey.core.key import checked_key, checked_scope
from oncekey.core.record import Record, Status
from oncekey.core.requests import Forget, Resolve, Scan, Verdict
from oncekey.engine.runtime import Core
from oncekey.errors import ConfigurationError, InProgressError, OutcomeUnknownError
from oncekey.observe import Event
from oncekey.stores.base import AsyncStore, Store

# Checks and requests that both classes use.


PURGE_BATCH: Final = 500
MISSING: Final[Any] = object()


def place(scope: str | None, key: str) -> Identity:
    """Return the identity of scope and key.

    Raise ConfigurationError if the scope is not valid, and InvalidKeyError if the key is not.
    """
    return checked_scope(scope), checked_key(key)


def forgettable(record: Record, *, force: bool) -> None:
    """Raise InProgressError or OutcomeUnknownError if the record needs `force` to be forgotten."""
    if force:
        return
    if record.status == "running":
        msg = f"{record.key!r} is running; forget it with force=True, and its attempt is lost"
        raise InProgressError(msg, key=record.key, scope=record.scope, retry_after=1.0)
    if record.status == "held":
        msg = f"{record.key!r} is held; resolve it, or forget it with force=True"
        raise OutcomeUnknownError(msg, key=record.key, scope=record.scope)


class Hand(Struct, frozen=True):
    """Who changes a record by hand, and why."""

    by: str
    reason: str

    def entry(
        self, action: Action, record: Record | None = None, became: str = "", count: int = 1
    ) -> AuditEntry:
        """Return the entry for the audit trail."""
        if record is None:
            return AuditEntry(action=action, by=self.by, reason=self.reason, count=count)
        return AuditEntry(
            action=action,
            by=self.by,
            reason=self.reason,
            scope=record.scope,
            key=record.key,
            was=record.status,
            became=became,
        )


def by_hand(by: str, reason: str) -> Hand | None:
    """Return who and why, or None if neither was said: then nothing is written down."""
    for name, said in (("by", by), ("reason", reason)):
        if not isinstance(said, str):
            msg = f"{name} must be a text, but it is {said!r}"
            raise ConfigurationError(msg)
    return Hand(by, reason) if by or reason else None


def tell(core: Core, entry: AuditEntry | None) -> None:
    """Tell the observers what was done by hand."""
    if entry is not None:
        why = f": {entry.reason}" if entry.reason else ""
        core.observers.hand(
            Event(
                name="forgotten" if entry.action == "forget" else "resolved",
                scope=entry.scope,
                key=entry.key,
                detail=f"{_TOLD[entry.action]}, by {entry.by or 'somebody'}{why}",
            )
        )


_TOLD: Final = {"resolve": "it has ended", "retry": "it may run again", "forget": "it was removed"}


class Resolution(Struct):
    """The end that a held record is given."""

    status: Literal["completed", "failed", "released"]
    result: bytes | None
    error: bytes | None
    ttl: int

    def request(self, record: Record) -> Resolve:
        """Return the request to resolve the record, valid for the token that was read."""
        return Resolve(
            record.scope,
            record.key,
            token=record.token,
            status=self.status,
            result=self.result,
            error=self.error,
            ttl=self.ttl,
        )


def resolution(*, result: object, error: BaseException | None, retry: bool, ttl: int) -> Resolution:
    """Return the resolution for a result, an error or a retry.

    Raise ConfigurationError unless exactly one of them is given, and can be kept.
    """
    said = [result is not MISSING, error is not None, retry]
    if sum(said) != 1:
        msg = "resolve needs exactly one of result=..., error=... and retry=True"
        raise ConfigurationError(msg)
    if retry:
        return Resolution("released", None, None, ttl)
    if error is not None:
        if not isinstance(error, BaseException):
            msg = f"error must be an exception, but it is {error!r}"
            raise ConfigurationError(msg)
        return Resolution("failed", None, encode_error(error), ttl)
    return Resolution("completed", _encode(result), None, ttl)


def _encode(result: object) -> bytes:
    try:
        return PLAIN.encode(result)
    except NotKeepableError:
        pass
    try:
        return Codec(type(result)).encode(result)
    except NotKeepableError as error:
        msg = f"the result cannot be kept: {error}"
        raise ConfigurationError(msg) from None


# For blocking code.


_TRIES: Final = 8


class Records:
    """Get, scan, forget, resolve and purge records."""

    def __init__(self, core: Core, store: Store) -> None:
        """Use the records of this store."""
        self.core = core
        self._store = store

    def get(self, scope: str | None, key: str) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        return self._store.get(*place(scope, key))

    def scan(
        self, scope: str | None, *, any_scope: bool, status: Status | None
    ) -> Iterator[Record]:
        """Yield the records that have not expired, in the order of scope and key."""
        ask = Scan(scope=scope, any_scope=any_scope, status=status)
        while True:
            page = self._store.scan(ask)
            for record in page.records:  # noqa: UP028 - the twin cannot `yield from`
                yield record
            if page.after is None:
                return
            ask.after = page.after

    def forget(self, scope: str | None, key: str, *, force: bool, hand: Hand | None = None) -> bool:
        """Forget the key. Return whether there was a record.

        Raise InProgressError or OutcomeUnknownError for a running or held record without `force`.
        """
        identity = place(scope, key)
        for _ in range(_TRIES):  # read again if the record changed meanwhile
            record = self._store.get(*identity)
            if record is None:
                return False
            forgettable(record, force=force)
            entry = hand.entry("forget", record) if hand else None
            ask = Forget(*identity, token=record.token, force=force)
            if entry is not None:
                ask.audit = entry.encode()
            if self._store.forget(ask) is Verdict.DONE:
                self.core.forgotten(identity)
                tell(self.core, entry)
                return True
        return False

    def resolve(
        self, scope: str | None, key: str, resolution: Resolution, hand: Hand | None = None
    ) -> bool:
        """End the held record. Return False if it is not held, or not any more."""
        identity = place(scope, key)
        record = self._store.get(*identity)
        if record is None or record.status != "held":
            return False
        ask, entry = resolution.request(record), None
        if hand:
            entry = hand.entry(
                "retry" if ask.status == "released" else "resolve", record, ask.status
            )
            ask.audit = entry.encode()
        if self._store.resolve(ask) is not Verdict.DONE:
            return False
        tell(self.core, entry)
        return True

    def purge(
        self, grace: int, progress: Callable[[int], None] | None, hand: Hand | None = None
    ) -> int:
        """Remove the records that expired longer ago than `grace`. Return how many.

        `progress` is called with the count so far after each batch.
        """
        total = 0
        try:
            while True:
                count = self._store.purge(grace, PURGE_BATCH)
                total += count
                if progress is not None:
                    progress(total)
                if count:
                    self.core.observers.hand(Event(name="purged", count=count))
                if count < PURGE_BATCH:
                    return total
        finally:
            audit = getattr(self._store, "audit", None)
            if hand and total and audit is not None:
                audit(hand.entry("purge", count=total).encode())


# For coroutines.


class AsyncRecords:
    """Get, scan, forget, resolve and purge records."""

    def __init__(self, core: Core, store: AsyncStore) -> None:
        """Use the records of this store."""
        self.core = core
        self._store = store

    async def get(self, scope: str | None, key: str) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        return await self._store.get(*place(scope, key))

    async def scan(
        self, scope: str | None, *, any_scope: bool, status: Status | None
    ) -> AsyncIterator[Record]:
        """Yield the records that have not expired, in the order of scope and key."""
        ask = Scan(scope=scope, any_scope=any_scope, status=status)
        while True:
            page = await self._store.scan(ask)
            for record in page.records:
                yield record
            if page.after is None:
                return
            ask.after = page.after

    async def forget(
        self, scope: str | None, key: str, *, force: bool, hand: Hand | None = None
    ) -> bool:
        """Forget the key. Return whether there was a record.

        Raise InProgressError or OutcomeUnknownError for a running or held record without `force`.
        """
        identity = place(scope, key)
        for _ in range(_TRIES):  # read again if the record changed meanwhile
            record = await self._store.get(*identity)
            if record is None:
                return False
            forgettable(record, force=force)
            entry = hand.entry("forget", record) if hand else None
            ask = Forget(*identity, token=record.token, force=force)
            if entry is not None:
                ask.audit = entry.encode()
            if await self._store.forget(ask) is Verdict.DONE:
                self.core.forgotten(identity)
                tell(self.core, entry)
                return True
        return False

    async def resolve(
        self, scope: str | None, key: str, resolution: Resolution, hand: Hand | None = None
    ) -> bool:
        """End the held record. Return False if it is not held, or not any more."""
        identity = place(scope, key)
        record = await self._store.get(*identity)
        if record is None or record.status != "held":
            return False
        ask, entry = resolution.request(record), None
        if hand:
            entry = hand.entry(
                "retry" if ask.status == "released" else "resolve", record, ask.status
            )
            ask.audit = entry.encode()
        if await self._store.resolve(ask) is not Verdict.DONE:
            return False
        tell(self.core, entry)
        return True

    async def purge(
        self, grace: int, progress: Callable[[int], None] | None, hand: Hand | None = None
    ) -> int:
        """Remove the records that expired longer ago than `grace`. Return how many.

        `progress` is called with the count so far after each batch.
        """
        total = 0
        try:
            while True:
                count = await self._store.purge(grace, PURGE_BATCH)
                total += count
                if progress is not None:
                    progress(total)
                if count:
                    self.core.observers.hand(Event(name="purged", count=count))
                if count < PURGE_BATCH:
                    return total
        finally:
            audit = getattr(self._store, "audit", None)
            if hand and total and audit is not None:
                await audit(hand.entry("purge", count=total).encode())
