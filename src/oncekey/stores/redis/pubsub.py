"""Listening for the end of an attempt: a subscription, or a nap where there can be none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from time import monotonic
from typing import Any, Final, Protocol

from redis.exceptions import NoPermissionError, TimeoutError  # noqa: A004 - redis-py calls it so

LONGEST_NAP: Final = 0.1
_MOST: Final = 32
_PATIENCE: Final = 5.0


class Ears(Protocol):
    """What hears."""

    hears: bool

    def wait(self, seconds: float, /) -> None:
        """Something was heard, or the time is over."""
        ...


class AsyncEars(Protocol):
    """The same for coroutines."""

    hears: bool

    async def wait(self, seconds: float, /) -> None:
        """Something was heard, or the time is over."""
        ...


class Seats:
    """How many may listen at once: each takes a connection that verbs may need more."""

    def __init__(self, connections: int) -> None:
        """Out of a pool of so many connections a quarter may be used for listening."""
        self._free = [None] * min(_MOST, connections // 4)

    def take(self) -> bool:
        """Whether one was free; taken in one step, so that threads need no lock."""
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def leave(self) -> None:
        """The seat is free again."""
        self._free.append(None)


@contextmanager
def listening(client: Any, channel: bytes, seats: Seats) -> Iterator[Ears]:
    """In the block nothing that is published there goes unheard."""
    if not seats.take():
        yield _Nap()
        return
    try:
        subscription = client.pubsub()
        try:
            yield _Subscription(subscription) if _subscribe(subscription, channel) else _Nap()
        finally:
            subscription.close()
    finally:
        seats.leave()


def _subscribe(subscription: Any, channel: bytes) -> bool:
    """Whether the server has confirmed it; False where the user may not."""
    try:
        subscription.subscribe(channel)
        told = subscription.get_message(timeout=_PATIENCE)
    except NoPermissionError:
        return False
    if told is None:
        raise TimeoutError("no answer to SUBSCRIBE")
    return True


class _Subscription:
    hears = True

    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    def wait(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            heard = self._subscription.get_message(timeout=left)
            if heard is not None:
                return


class _Nap:
    hears = False

    def wait(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, LONGEST_NAP)))


@asynccontextmanager
async def listening_async(client: Any, channel: bytes, seats: Seats) -> AsyncIterator[AsyncEars]:
    """In the block nothing that is published there goes unheard."""
    if not seats.take():
        yield _AsyncNap()
        return
    try:
        subscription = client.pubsub()
        try:
            before = _cancellations()
            subscribed = await _subscribe_async(subscription, channel)
            yield _AsyncSubscription(subscription, before) if subscribed else _AsyncNap()
        finally:
            await subscription.aclose()
    finally:
        seats.leave()


async def _subscribe_async(subscription: Any, channel: bytes) -> bool:
    try:
        await subscription.subscribe(channel)
        told = await subscription.get_message(timeout=_PATIENCE)
    except NoPermissionError:
        return False
    if told is None:  # pragma: no cover - Python 3.11 loses its trace where a time-out was caught
        raise TimeoutError("no answer to SUBSCRIBE")
    return True


def _cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine of redis-py runs in one
    return task.cancelling()


class _AsyncSubscription:
    hears = True

    def __init__(self, subscription: Any, cancellations: int) -> None:
        self._subscription = subscription
        self._cancellations = cancellations

    async def wait(self, seconds: float) -> None:
        # Python 3.11 may forget a cancellation in the middle of a command; here that would be long.
        if _cancellations() > self._cancellations:
            raise asyncio.CancelledError
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            heard = await self._subscription.get_message(timeout=left)
            if heard is not None:  # pragma: no branch - the same
                return


class _AsyncNap:
    hears = False

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, LONGEST_NAP)))
