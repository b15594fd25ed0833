"""Stores of one colour seen from the other: blocking ones from coroutines, and the reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Final, TypeVar

from oncekey.errors import StoreError
from oncekey.record import Record
from oncekey.stores.base import VERBS, AsyncStore, Store
from oncekey.verbs import (
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

T = TypeVar("T")

_LOOP_PATIENCE: Final = 5.0


class Inline:
    """A store that never waits for anything, called on the event loop itself."""

    def __init__(self, store: Store) -> None:
        """The verbs of `store`, as coroutines that do not suspend."""
        self.blocking = store

    async def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record."""
        return await self._call(self.blocking.claim, ask)

    async def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return await self._call(self.blocking.renew, ask)

    async def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return await self._call(self.blocking.note, ask)

    async def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return await self._call(self.blocking.settle, ask)

    async def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return await self._call(self.blocking.release, ask)

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return await self._call(self.blocking.resolve, ask)

    async def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return await self._call(self.blocking.forget, ask)

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        return await self._call(self.blocking.get, scope, key)

    async def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        return await self._call(self.blocking.scan, ask)

    async def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""
        return await self._call(self.blocking.purge, grace, limit)

    async def aclose(self) -> None:
        """The blocking store is closed."""
        await self._call(self.blocking.close)

    async def _call(self, verb: Callable[..., T], *arguments: object) -> T:
        return verb(*arguments)


class Threaded(Inline):
    """A store that blocks, called on a thread of the event loop's pool."""

    async def _call(self, verb: Callable[..., T], *arguments: object) -> T:
        return await asyncio.to_thread(verb, *arguments)


class Looped:
    """A native async store, and how the keeper's thread reaches it.

    The keeper asks on the loop that used the store last, and waits for the answer.
    """

    def __init__(self, store: AsyncStore) -> None:
        """The verbs of `store`; its `blocking` side is only for other threads."""
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self.blocking = OnLoop(self)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """The verb of the store, noting which loop it runs on."""
        verb: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        self._loop = asyncio.get_running_loop()
        return verb

    def wait_for(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - as the verb answers
        """The answer of a verb, for a thread that is not the loop's."""
        if self._loop is None or self._loop.is_closed():
            msg = f"{name} was not sent: the event loop of the store is closed"
            raise StoreError(msg, happened=False)
        coroutine = getattr(self._store, name)(*arguments)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # it was closed between the two lines
            coroutine.close()
            msg = f"{name} was not sent: the event loop of the store is closed"
            raise StoreError(msg, happened=False) from None
        try:
            return future.result(_LOOP_PATIENCE)
        except (TimeoutError, CancelledError):
            future.cancel()
            msg = f"{name} was sent, but the event loop of the store did not answer in time"
            raise StoreError(msg, happened=None) from None


class OnLoop:
    """The blocking side of a native async store."""

    def __init__(self, looped: Looped) -> None:
        """The verbs are sent to the loop of `looped`."""
        self._looped = looped

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The verb, for a thread that is not the loop's."""
        if name not in VERBS:
            raise AttributeError(name)
        return partial(self._looped.wait_for, name)
