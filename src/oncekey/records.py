"""Records, looked at and changed by hand, in both colours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, Literal

from msgspec import Struct

from oncekey.core.call import Identity
from oncekey.core.codec import PLAIN, Codec, NotKeepableError, encode_error
from oncekey.core.key import checked_key, checked_scope
from oncekey.core.record import Record, Status
from oncekey.core.requests import Forget, Resolve, Scan, Verdict
from oncekey.engine.runtime import Core
from oncekey.errors import ConfigurationError, InProgressError, OutcomeUnknownError
from oncekey.observe import Event
from oncekey.stores.base import AsyncStore, Store

# What may be done, for both colours.


PURGE_BATCH: Final = 500
MISSING: Final[Any] = object()


def place(scope: str | None, key: str) -> Identity:
    """The identity that a person named, if it can be one."""
    return checked_scope(scope), checked_key(key)


def forgettable(record: Record, *, force: bool) -> None:
    """Nothing, unless the record is alive and nobody insists."""
    if force:
        return
    if record.status == "running":
        msg = f"{record.key!r} is running; forget it with force=True, and its attempt is lost"
        raise InProgressError(msg, key=record.key, scope=record.scope, retry_after=1.0)
    if record.status == "held":
        msg = f"{record.key!r} is held; resolve it, or forget it with force=True"
        raise OutcomeUnknownError(msg, key=record.key, scope=record.scope)


class Resolution(Struct):
    """How a held record ends."""

    status: Literal["completed", "failed", "released"]
    result: bytes | None
    error: bytes | None
    ttl: int

    def request(self, record: Record) -> Resolve:
        """The request for the record as it was read."""
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
    """What a person said: exactly one of a result, an error and a retry."""
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


# For code that blocks.


_TRIES: Final = 8


class Records:
    """The verbs for people: get, scan, forget, resolve, purge."""

    def __init__(self, core: Core, store: Store) -> None:
        """The records of this store."""
        self.core = core
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
                self.core.forgotten(identity)
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
                self.core.observers.hand(Event(name="purged", count=count))
            if count < PURGE_BATCH:
                return total


# For coroutines.


class AsyncRecords:
    """The verbs for people: get, scan, forget, resolve, purge."""

    def __init__(self, core: Core, store: AsyncStore) -> None:
        """The records of this store."""
        self.core = core
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
                self.core.forgotten(identity)
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
                self.core.observers.hand(Event(name="purged", count=count))
            if count < PURGE_BATCH:
                return total
