"""Wait for the end of an attempt: with a subscription, or by sleeping where there is none."""

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
    """Wait for a message."""

    hears: bool

    def wait(self, seconds: float, /) -> None:
        """Return when a message arrives, or when the time is over."""
        ...


class AsyncEars(Protocol):
    """Wait for a message in a coroutine."""

    hears: bool

    async def wait(self, seconds: float, /) -> None:
        """Return when a message arrives, or when the time is over."""
        ...


class Seats:
    """Limit the number of subscriptions: each needs a connection, which verbs may need more."""

    def __init__(self, connections: int) -> None:
        """Allow a quarter of so many connections to be used for subscriptions, at most 32."""
        self._free = [None] * min(_MOST, connections // 4)

    def take(self) -> bool:
        """Take a seat. Return False if none is free. This is atomic, so threads need no lock."""
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def leave(self) -> None:
        """Free the seat."""
        self._free.append(None)


@contextmanager
def listening(client: Any, channel: bytes, seats: Seats) -> Iterator[Ears]:
    """Subscribe to the channel. No message that is published during the block is lost.

    Without a free seat or without the permission to subscribe, `wait` only sleeps, at most 0.1 s.
    """
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
    """Return True when the server has confirmed it, or False without permission."""
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
    """Subscribe to the channel, as `listening` does."""
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
        # Python 3.11 may lose a cancellation in the middle of a command, and this wait may be long.
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
