"""The protocols `Store` and `AsyncStore`: ten verbs, each of them one atomic step."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

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
from oncekey.errors import ConfigurationError
from oncekey.stores.activity import Activity, Counts

# A store knows nothing about policies or functions. Any class with these methods is one; nothing
# needs to be inherited. `oncekey.testing.StoreConformance` checks the rules of `machine.py` on it.
#
# Every verb may raise `StoreError`, which says whether the verb certainly did not happen. It may be
# repeated after that: the rules make a repetition harmless.


@runtime_checkable
class Store(Protocol):
    """A store for code that blocks. Its methods may be called from any thread."""

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not."""
        ...

    def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        ...

    def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        ...

    def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        ...

    def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        ...

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        ...

    def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        ...

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        ...

    def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        ...

    def purge(self, grace: int, limit: int, /) -> int:
        """Remove records that expired `grace` microseconds ago.

        Remove at most `limit` of them, and return how many were removed.
        """
        ...

    def close(self) -> None:
        """Close the connections. The next use opens new ones."""
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A store for coroutines, with the same verbs."""

    async def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not."""
        ...

    async def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        ...

    async def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        ...

    async def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        ...

    async def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        ...

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        ...

    async def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        ...

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        ...

    async def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        ...

    async def purge(self, grace: int, limit: int, /) -> int:
        """Remove records that expired `grace` microseconds ago.

        Remove at most `limit` of them, and return how many were removed.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. The next use opens new ones."""
        ...


@runtime_checkable
class Watching(Protocol):
    """An optional method of a store, with which a duplicate can wait without polling.

    An `AsyncStore` may have the same as a coroutine.
    """

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """Wait until the record is no longer running under this token, or `seconds` are over.

        It may return early for no reason. If it misses a change, it returns when the time is over.
        """
        ...


@runtime_checkable
class Auditing(Protocol):
    """Optional methods of a store that keeps an audit trail, with the newest 10,000 entries.

    Such a store writes `Resolve.audit` and `Forget.audit` in the same step as the change. An
    `AsyncStore` may have the same as coroutines.
    """

    def audit(self, entry: bytes, /) -> None:
        """Add an entry about something else than one record."""
        ...

    def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries, each with its time in microseconds, the newest first."""
        ...


@runtime_checkable
class Charting(Protocol):
    """Optional methods of a store that keeps counts of calls for the charts of the dashboard.

    An `AsyncStore` may have the same as coroutines.
    """

    def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of the moment that many microseconds ago."""
        ...

    def activity(self) -> Activity:
        """Return the sums that are kept, of all processes."""
        ...


@runtime_checkable
class Restoring(Protocol):
    """An optional method of a store, with which records are moved to it from another one.

    An `AsyncStore` may have the same as a coroutine.
    """

    def restore(self, record: Record, /) -> bool:
        """Keep the record as it is. Return False if there is a living one of this scope and key.

        Nothing is changed then. A record that has expired is not kept, and False is returned.
        """
        ...


_DJANGO = ("oncekey.stores.django.DjangoStore", "oncekey.stores.django.AsyncDjangoStore")


def store_behind(store: Any) -> Any:
    """Return the store that does the work: the one that a `DjangoStore` finds, or this one."""
    for kind in type(store).__mro__:
        if f"{kind.__module__}.{kind.__qualname__}" in _DJANGO:
            return store.behind
    return store


VERBS = ("claim", "renew", "note", "settle", "release", "resolve", "forget", "get", "scan", "purge")


# The option `fast`, with which a store may combine the requests of many callers.


def checked_fast(fast: object) -> bool:
    """Return `fast`. Raise ConfigurationError if it is not a bool."""
    if not isinstance(fast, bool):
        raise ConfigurationError(f"fast must be True or False, not {fast!r}")
    return fast
