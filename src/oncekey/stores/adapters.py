"""Stores of one colour seen from the other: blocking ones from coroutines, and the reverse."""

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
from oncekey.stores.base import VERBS, AsyncStore, Store

T = TypeVar("T")

_LOOP_PATIENCE: Final = 5.0
_LOOKS: Final = 20


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

    @property
    def watch(self) -> Callable[..., Awaitable[None]] | None:
        """How to wait for a change, where the store can tell of one."""
        watch = getattr(self.blocking, "watch", None)
        return None if watch is None else partial(self._call, watch)

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

    def wait_for(self, name: str, *arguments: object) -> Any:
        """The answer of a verb, for a thread that is not the loop's."""
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
    """True when the loop is open and will come to the callback, unless it is closed before."""
    try:
        if loop is not None:
            loop.call_soon_threadsafe(callback)
    except RuntimeError:
        return False
    return loop is not None


class _Errand(Coroutine[Any, Any, Any]):
    """A verb on its way to a loop.

    Its coroutine is made when the loop takes its first step: a loop that closes before leaves no
    coroutine behind that nobody awaits, and the errand is known not to have begun.
    """

    def __init__(self, verb: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._verb = verb
        self._steps: Coroutine[Any, Any, Any] | None = None
        self._task: asyncio.Task[Any]
        self.answer: Future[Any] = Future()

    def never(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether the verb has not begun, and never will."""
        return loop is not None and loop.is_closed() and self._steps is None

    def result(self, loop: asyncio.AbstractEventLoop | None) -> Any:
        """The answer, for a thread that waits; a loop that is closed gives none any more."""
        for _ in range(_LOOKS):
            try:
                return self.answer.result(_LOOP_PATIENCE / _LOOKS)
            except TimeoutError:
                if loop is None or loop.is_closed():
                    break
        raise TimeoutError

    def begin(self) -> None:
        """The verb runs, unless the asker has given up; on the loop only."""
        if self.answer.set_running_or_notify_cancel():
            self._task = asyncio.ensure_future(self)
            # A loop that ends now may never come to it, and need not complain: `result` sees it.
            self._task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as asyncio.gather does
            self._task.add_done_callback(self._end)

    def send(self, value: Any, /) -> Any:
        """The next step of the verb."""
        if self._steps is None:
            self._steps = self._verb()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """The error is raised where the verb waits."""
        if self._steps is None:
            raise error[0]
        return self._steps.throw(*error)

    def close(self) -> None:
        """The verb takes no more steps."""
        if self._steps is not None:
            self._steps.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError  # it is a task's, and nobody else's

    def stop(self) -> None:
        """The verb, which has begun, is cancelled; on the loop only."""
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
        """The verbs are sent to the loop of `looped`."""
        self._looped = looped

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The verb, for a thread that is not the loop's."""
        if name not in VERBS:
            raise AttributeError(name)
        return partial(self._looped.wait_for, name)
