"""What a store is: ten verbs, each one atomic step, and nothing about policies or functions."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

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

# What a store is: ten verbs, each one atomic step, and nothing about policies or functions.
#
# Any class with these methods is a store; nothing needs to be inherited.
# `oncekey.testing.StoreConformance` proves that one keeps the rules of `machine.py`.
#
# Every verb may raise `StoreError`, which says whether the verb surely did not happen, and may
# be repeated after that: the rules make a repetition harmless.


@runtime_checkable
class Store(Protocol):
    """A store for code that blocks. Its methods may be called from any thread."""

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        ...

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        ...

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        ...

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        ...

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        ...

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        ...

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        ...

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        ...

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        ...

    def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""
        ...

    def close(self) -> None:
        """Connections are closed. The next use opens new ones."""
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A store for coroutines: the same verbs."""

    async def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        ...

    async def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        ...

    async def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        ...

    async def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        ...

    async def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        ...

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        ...

    async def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        ...

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        ...

    async def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        ...

    async def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""
        ...

    async def aclose(self) -> None:
        """Connections are closed. The next use opens new ones."""
        ...


@runtime_checkable
class Watching(Protocol):
    """What a store may add to its verbs: those who wait need not keep asking.

    An `AsyncStore` has the same as a coroutine.
    """

    def watch(self, scope: str | None, key: str, token: int, seconds: float, /) -> None:
        """The record may not be running under this token any more, or the seconds are over.

        It may return early for no reason; a change that it misses costs no more than the seconds.
        """
        ...


VERBS = ("claim", "renew", "note", "settle", "release", "resolve", "forget", "get", "scan", "purge")


# Whether a store may put the calls of many callers together, as the user has said.


def checked_fast(fast: object) -> bool:
    """The same, or refused where it is no truth value."""
    if not isinstance(fast, bool):
        raise ConfigurationError(f"fast must be True or False, not {fast!r}")
    return fast
