"""Adapters: use a blocking store from coroutines, and an async store from other threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Final, TypeVar

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
from oncekey.errors import StoreError
from oncekey.stores.activity import Activity
from oncekey.stores.base import VERBS, AsyncStore, Store

T = TypeVar("T")

_LOOP_PATIENCE: Final = 5.0
_LOOKS: Final = 20


class Inline:
    """A store that never waits, called on the event loop itself."""

    def __init__(self, store: Store) -> None:
        """Offer the verbs of `store` as coroutines that do not suspend."""
        self.blocking = store

    async def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not."""
        return await self._call(self.blocking.claim, ask)

    async def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        return await self._call(self.blocking.renew, ask)

    async def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        return await self._call(self.blocking.note, ask)

    async def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        return await self._call(self.blocking.settle, ask)

    async def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        return await self._call(self.blocking.release, ask)

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        return await self._call(self.blocking.resolve, ask)

    async def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        return await self._call(self.blocking.forget, ask)

    async def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        return await self._call(self.blocking.get, scope, key)

    async def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        return await self._call(self.blocking.scan, ask)

    async def purge(self, grace: int, limit: int, /) -> int:
        """Remove at most `limit` records that expired `grace` microseconds ago. Return how many."""
        return await self._call(self.blocking.purge, grace, limit)

    @property
    def watch(self) -> Callable[..., Awaitable[None]] | None:
        """The `watch` of the store as a coroutine, or None if it has none."""
        watch = getattr(self.blocking, "watch", None)
        return None if watch is None else partial(self._call, watch)

    @property
    def restore(self) -> Callable[..., Awaitable[bool]] | None:
        """The `restore` of the store as a coroutine, or None if it has none."""
        restore = getattr(self.blocking, "restore", None)
        return None if restore is None else partial(self._call, restore)

    @property
    def audit(self) -> Callable[..., Awaitable[None]] | None:
        """The `audit` of the store as a coroutine, or None if it keeps no audit trail."""
        audit = getattr(self.blocking, "audit", None)
        return None if audit is None else partial(self._call, audit)

    @property
    def audited(self) -> Callable[..., Awaitable[list[tuple[int, bytes]]]] | None:
        """The `audited` of the store as a coroutine, or None if it keeps no audit trail."""
        audited = getattr(self.blocking, "audited", None)
        return None if audited is None else partial(self._call, audited)

    @property
    def add_activity(self) -> Callable[..., Awaitable[None]] | None:
        """The `add_activity` of the store as a coroutine, or None if it has none."""
        add_activity = getattr(self.blocking, "add_activity", None)
        return None if add_activity is None else partial(self._call, add_activity)

    @property
    def activity(self) -> Callable[..., Awaitable[Activity]] | None:
        """The `activity` of the store as a coroutine, or None if it has none."""
        activity = getattr(self.blocking, "activity", None)
        return None if activity is None else partial(self._call, activity)

    async def aclose(self) -> None:
        """Close the blocking store."""
        await self._call(self.blocking.close)

    async def _call(self, verb: Callable[..., T], *arguments: object) -> T:
        return verb(*arguments)


class Threaded(Inline):
    """A store that blocks, called on a thread of the event loop's pool."""

    async def _call(self, verb: Callable[..., T], *arguments: object) -> T:
        return await asyncio.to_thread(verb, *arguments)


class Looped:
    """A native async store that the keeper's thread can use too.

    The keeper's requests run on the loop that used the store last, and the keeper waits for them.
    """

    def __init__(self, store: AsyncStore) -> None:
        """Offer the verbs of `store`. `blocking` is for other threads only."""
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self.blocking = OnLoop(self)
        self.charts: Final = hasattr(store, "add_activity")
        """Whether the store keeps counts for charts."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Return the verb of the store, and remember the loop on which it runs."""
        verb: Callable[..., Awaitable[Any]] = getattr(self._store, name)
        self._loop = asyncio.get_running_loop()
        return verb

    def wait_for(self, name: str, *arguments: object) -> Any:
        """Run a verb on the loop, and return its answer. Call this from another thread.

        Raise StoreError if the loop is closed, or does not answer within 5 seconds.
        """
        errand = _Errand(partial(getattr(self._store, name), *arguments))
        if not _given_to(self._loop, errand.begin):
            msg = f"{name} was not sent: the event loop of the store is closed"
            raise StoreError(msg, happened=False)
        try:
            return errand.result(self._loop)
        except (TimeoutError, CancelledError):
            if errand.answer.cancel() or errand.never(self._loop):
                msg = f"{name} was not sent: the event loop of the store did not come to it in time"
                raise StoreError(msg, happened=False) from None
            _given_to(self._loop, errand.stop)
            msg = f"{name} was sent, but the event loop of the store did not answer in time"
            raise StoreError(msg, happened=None) from None


def _given_to(loop: asyncio.AbstractEventLoop | None, callback: Callable[[], None]) -> bool:
    """Schedule the callback on the loop. Return False if the loop is closed."""
    try:
        if loop is not None:
            loop.call_soon_threadsafe(callback)
    except RuntimeError:
        return False
    return loop is not None


class _Errand(Coroutine[Any, Any, Any]):
    """A verb that is sent to a loop.

    The coroutine is created when the loop takes its first step. So a loop that is closed before
    that leaves no coroutine that was never awaited, and the verb is known not to have begun.
    """

    def __init__(self, verb: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._verb = verb
        self._steps: Coroutine[Any, Any, Any] | None = None
        self._task: asyncio.Task[Any]
        self.answer: Future[Any] = Future()

    def never(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Return whether the verb has not begun and never will."""
        return loop is not None and loop.is_closed() and self._steps is None

    def result(self, loop: asyncio.AbstractEventLoop | None) -> Any:
        """Wait for the answer. Raise TimeoutError if it takes too long or if the loop is closed."""
        for _ in range(_LOOKS):
            try:
                return self.answer.result(_LOOP_PATIENCE / _LOOKS)
            except TimeoutError:
                if loop is None or loop.is_closed():
                    break
        raise TimeoutError

    def begin(self) -> None:
        """Start the verb, unless the caller has given up. Call this on the loop."""
        if self.answer.set_running_or_notify_cancel():
            self._task = asyncio.ensure_future(self)
            # The loop may end before it runs the task. `result` notices that, so asyncio need not
            # warn.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.gather does
            self._task.add_done_callback(self._end)

    def send(self, value: Any, /) -> Any:
        """Run the next step of the verb, which creates its coroutine first."""
        if self._steps is None:
            self._steps = self._verb()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise the error where the verb waits."""
        if self._steps is None:
            raise error[0]
        return self._steps.throw(*error)

    def close(self) -> None:
        """Close the coroutine, if it was created."""
        if self._steps is not None:
            self._steps.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError  # only used as the coroutine of a task

    def stop(self) -> None:
        """Cancel the verb, which has begun. Call this on the loop."""
        self._task.cancel()

    def _end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.answer.set_exception(CancelledError())
        elif error := task.exception():
            self.answer.set_exception(error)
        else:
            self.answer.set_result(task.result())


class OnLoop:
    """The blocking side of a native async store."""

    def __init__(self, looped: Looped) -> None:
        """Send the verbs to the loop of `looped`."""
        self._looped = looped

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the verb, for threads other than the loop's."""
        if name not in VERBS and not (name == "add_activity" and self._looped.charts):
            raise AttributeError(name)
        return partial(self._looped.wait_for, name)
