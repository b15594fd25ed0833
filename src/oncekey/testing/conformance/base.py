"""The helpers that every part of the suite uses, and what a store's own tests may override."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partialmethod
from typing import Any, ClassVar, Final, Protocol

import pytest
from msgspec.structs import replace

from oncekey.core.machine import HOUR
from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Granted,
    Note,
    Release,
    Renew,
    Resolve,
    Settle,
    Verdict,
)
from oncekey.stores.base import AsyncStore, Store
from oncekey.testing.clock import FakeClock

# One key of a store, with short methods for its requests.


SAME: Final = "1:same"
OTHER: Final = "1:other"
NEWER: Final = "2:newer"
"""The fingerprint of the first caller, another one, and one of another version."""

DONE: Final = Verdict.DONE
ENDED: Final = Verdict.ENDED
LOST: Final = Verdict.LOST


class Desk:
    """Send requests about one scope and key. What a test does not care about has a default."""

    def __init__(
        self,
        store: Store,
        *,
        lease: int,
        ttl: int,
        key: str = "order-1",
        scope: str | None = None,
    ) -> None:
        self.store = store
        self.lease = lease
        self.ttl = ttl
        self.key = key
        self.scope = scope

    def at(self, key: str, scope: str | None = None) -> Desk:
        """Return a desk for another key of the same store."""
        return Desk(self.store, lease=self.lease, ttl=self.ttl, key=key, scope=scope)

    def ask(self, nonce: str, **other: object) -> Claim:
        """Return a claim without sending it."""
        ask = Claim(
            self.scope, self.key, nonce=nonce, fingerprint=SAME, lease=self.lease, ttl=self.ttl
        )
        return replace(ask, **other)

    def claim(self, nonce: str, **other: object) -> Answer:
        """Claim the key and return the answer."""
        return self.store.claim(self.ask(nonce, **other))

    def grant(self, nonce: str, **other: object) -> Record:
        """Claim the key, which must be granted, and return the record."""
        answer = self.claim(nonce, **other)
        assert type(answer) is Granted, answer  # noqa: S101 - a step of a test that must succeed
        assert answer.record.nonce == nonce  # noqa: S101 - the same
        return answer.record

    def renew(self, owner: Record, **other: object) -> Verdict:
        """Renew the owner's lease."""
        ask = Renew(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            lease=self.lease,
            ttl=self.ttl,
        )
        return self.store.renew(replace(ask, **other))

    def note(self, owner: Record, noted: bytes, revision: int, **other: object) -> Verdict:
        """Write the owner's notes."""
        ask = Note(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            noted=noted,
            revision=revision,
        )
        return self.store.note(replace(ask, **other))

    def settle(self, owner: Record, **other: object) -> Verdict:
        """Settle the record as its owner."""
        ask = Settle(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            status="completed",
            result=b"result",
            error=None,
            ttl=self.ttl,
        )
        return self.store.settle(replace(ask, **other))

    def release(self, owner: Record, **other: object) -> Verdict:
        """Release the claim as its owner, by default after a definite error."""
        ask = Release(
            self.scope,
            self.key,
            token=owner.token,
            nonce=owner.nonce,
            error=b"error",
            uncertain=False,
            hold=False,
            unused=False,
            counted=False,
            bare_ttl=HOUR,
            ttl=self.ttl,
        )
        return self.store.release(replace(ask, **other))

    def hold(self, owner: Record) -> Verdict:
        """End the attempt with an unknown outcome, so that the record is held."""
        return self.release(owner, uncertain=True, hold=True)

    def resolve(self, read: Record, **other: object) -> Verdict:
        """Resolve the record, as it was read."""
        ask = Resolve(
            self.scope,
            self.key,
            token=read.token,
            status="completed",
            result=b"resolved",
            error=None,
            ttl=self.ttl,
        )
        return self.store.resolve(replace(ask, **other))

    def forget(self, read: Record, *, force: bool = False, audit: bytes = b"") -> Verdict:
        """Forget the record, as it was read."""
        ask = Forget(self.scope, self.key, token=read.token, force=force, audit=audit)
        return self.store.forget(ask)

    def get(self) -> Record | None:
        """Return the living record, or None if there is none."""
        return self.store.get(self.scope, self.key)

    def read(self) -> Record:
        """Return the living record, which must exist."""
        record = self.get()
        assert record is not None, self.key  # noqa: S101 - a step of a test that must succeed
        return record

    def status(self) -> str:
        """Return the status of the record as the table names it; "none" if there is none."""
        record = self.get()
        return "none" if record is None else record.status


# Blocking and async stores as the suite sees them: blocking, and asked by many callers at once.


PATIENCE: Final = 30.0
"""The seconds after which concurrent callers that do not meet fail the test, which would hang."""


class Line(Store, Protocol):
    """A store, and a way to ask it from many callers at the same moment."""

    def claim_together(self, asks: Sequence[Claim]) -> list[Answer]:
        """Send all claims at once and return the answers."""
        ...


def has_method(store: Store, name: str) -> bool:
    """Return whether the store has this method, which it need not have."""
    return getattr(getattr(store, "_store", store), name, None) is not None


class Blocking:
    """A blocking store. Concurrent claims get a thread each."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def claim_together(self, asks: Sequence[Claim]) -> list[Answer]:
        """Send each claim on a thread once all threads are ready. Return the answers."""
        barrier = threading.Barrier(len(asks))

        def ask_one(ask: Claim) -> Answer:
            barrier.wait(PATIENCE)
            return self._store.claim(ask)

        with ThreadPoolExecutor(len(asks)) as pool:
            return list(pool.map(ask_one, asks))


class OnRunner:
    """An async store. Requests run on one event loop, and concurrent claims get a task each."""

    def __init__(self, store: AsyncStore, runner: asyncio.Runner) -> None:
        """Await the methods of `store` on the loop of `runner`."""
        self._store = store
        self._runner = runner

    def _run(self, name: str, *arguments: object) -> Any:
        async def wait() -> object:
            return await getattr(self._store, name)(*arguments)

        return self._runner.run(wait())

    claim = partialmethod(_run, "claim")
    renew = partialmethod(_run, "renew")
    note = partialmethod(_run, "note")
    settle = partialmethod(_run, "settle")
    release = partialmethod(_run, "release")
    resolve = partialmethod(_run, "resolve")
    forget = partialmethod(_run, "forget")
    get = partialmethod(_run, "get")
    scan = partialmethod(_run, "scan")
    purge = partialmethod(_run, "purge")
    restore = partialmethod(_run, "restore")
    audit = partialmethod(_run, "audit")
    audited = partialmethod(_run, "audited")
    add_activity = partialmethod(_run, "add_activity")
    activity = partialmethod(_run, "activity")
    close = partialmethod(_run, "aclose")

    def claim_together(self, asks: Sequence[Claim]) -> list[Answer]:
        """Send each claim in a task once all tasks are ready. Return the answers."""

        async def crowd() -> list[Answer]:
            ready, go = asyncio.Semaphore(0), asyncio.Event()

            async def ask_one(ask: Claim) -> Answer:
                ready.release()
                await go.wait()
                return await self._store.claim(ask)

            tasks = [asyncio.create_task(ask_one(ask)) for ask in asks]
            for _ in asks:
                await ready.acquire()
            go.set()
            return await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)

        return self._runner.run(crowd())


Tick = Callable[[int], None]


class Suite:
    """The settings and fixtures of the suite.

    By default time is a `FakeClock` that the store is given. A store that uses the clock of its
    server overrides `clock` (how to ask for that time), `tick` (really waits) and `blur`.
    """

    lease: ClassVar[int] = 200_000
    """The length of a lease in microseconds. A test waits for a few of them at most."""

    ttl: ClassVar[int] = 300_000
    """The lifetime of a settled record in microseconds."""

    blur: ClassVar[int] = 0
    """The microseconds that may pass by themselves during a test; well below a third of `lease`."""

    purges: ClassVar[bool] = True
    """Whether `purge` removes expired records; False if the server does that by itself."""

    @pytest.fixture
    def clock(self) -> FakeClock:
        """Return the store's clock, which returns microseconds when it is called."""
        return FakeClock()

    @pytest.fixture
    def tick(self, clock: FakeClock) -> Tick:
        """Return a function that waits until this many microseconds have passed for the store."""
        return clock.tick

    @pytest.fixture
    def line(self) -> Line:
        """Return the store under test, blocking."""
        raise NotImplementedError

    @pytest.fixture
    def desk(self, line: Line) -> Desk:
        """Return a desk for one key of the store under test."""
        return Desk(line, lease=self.lease, ttl=self.ttl)

    def almost(self, length: int) -> int:
        """Return the longest wait after which `length` has surely not passed."""
        return length - 1 - self.blur

    @property
    def rest(self) -> int:
        """The shortest wait after `almost` that surely completes the length."""
        return 1 + 2 * self.blur
