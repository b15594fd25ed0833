"""Wake-ups for followers of jobs in Redis, with one subscription for each event loop.

A job has a channel of its own, so that a process hears nothing of jobs that nobody follows in it. A
wake-up may be missed. A reader that is not woken looks at the log by itself, a little later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import ConnectionError  # noqa: A004 - redis-py calls it so

from oncekey.stores.redis.client import AsyncClients

_SILENCE: Final = 10.0
_SHORTEST: Final = 0.05
_LONGEST: Final = 2.0
_log = logging.getLogger("oncekey.events")


Wake = Callable[[str], None]
"""Called with the id of an event, or with nothing if many may have been missed."""


class Wakeups:
    """A task that listens while readers wait, and reconnects whenever it is cut off."""

    def __init__(self, clients: AsyncClients) -> None:
        self._clients = clients
        self._waiting: dict[bytes, list[Wake]] = {}
        self._task: asyncio.Task[None] | None = None
        self._subscription: Any = None
        """The open subscription, or None while there is none."""
        self._told: set[bytes] = set()
        """The channels of the open subscription."""
        self._telling = asyncio.Lock()

    async def enter(self, channel: str, wake: Wake) -> None:
        """Call `wake` at each message on the channel, and when the subscription to it stands."""
        self._waiting.setdefault(channel.encode(), []).append(wake)
        if self._task is None:
            self._task = asyncio.create_task(self._listen())
        await self._tell()

    async def leave(self, channel: str, wake: Wake) -> None:
        """Stop calling `wake`. End the subscription with the last one."""
        together = self._waiting[channel.encode()]
        together.remove(wake)
        if not together:
            del self._waiting[channel.encode()]
        if self._waiting or self._task is None:
            await self._tell()
            return
        task, self._task = self._task, None
        while not task.done():  # redis-py on Python 3.11 may swallow a cancellation
            task.cancel()
            await asyncio.wait([task], timeout=1.0)

    async def _tell(self) -> None:
        """Subscribe to the channels of those who wait, and to no others."""
        async with self._telling:  # one after the other, so that the last word is the right one
            subscription = self._subscription
            if subscription is None:
                return
            new, old = self._waiting.keys() - self._told, self._told - self._waiting.keys()
            self._told |= new
            self._told -= old
            try:
                if new:
                    await subscription.subscribe(*new)
                if old and self._told:
                    await subscription.unsubscribe(*old)
            except Exception as error:  # noqa: BLE001 - the next subscription is to all of them
                _log.debug("a subscription to %s broke: %s", self._clients.where, error)

    async def _listen(self) -> None:
        pause, task = _SHORTEST, asyncio.current_task()
        while self._task is task:
            try:
                client = await self._clients.client()
                async with client.pubsub() as subscription:
                    self._told = set(self._waiting)
                    await subscription.subscribe(*self._told)
                    self._subscription = subscription
                    await self._tell()
                    while self._task is task:
                        self._pass_on(await _heard(subscription))
                        pause = _SHORTEST
            except Exception as error:  # noqa: BLE001 - whatever it is, readers look by themselves
                if pause == _SHORTEST:
                    _log.warning("a subscription to %s broke: %s", self._clients.where, error)
                self._subscription = None
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST)
            finally:
                self._subscription = None

    def _pass_on(self, message: dict[str, Any]) -> None:
        """Wake the readers of the channel: it has a message, or what came before was not heard."""
        if message["type"] not in ("message", "subscribe"):
            return
        name, data = message["channel"], message["data"]
        channel = name if isinstance(name, bytes) else str(name).encode()
        told = data.decode() if isinstance(data, bytes) else data
        for wake in list(self._waiting.get(channel, ())):
            wake(told if isinstance(told, str) else "")


async def _heard(subscription: Any) -> dict[str, Any]:
    """Return the next message, and ping the server if it is silent.

    Raise ConnectionError if it stays silent.
    """
    for ping in (True, False):
        message: dict[str, Any] | None = await subscription.get_message(timeout=_SILENCE)
        if message is not None:
            return message
        if ping:
            await subscription.ping()
    raise ConnectionError("the subscription is silent")
