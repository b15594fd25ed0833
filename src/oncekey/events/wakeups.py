"""Wake-ups for followers of jobs in Redis, with one subscription for each event loop.

A wake-up may be missed. A reader that is not woken looks at the log by itself, a little later.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from redis.exceptions import ConnectionError  # noqa: A004 - redis-py calls it so

from oncekey.events.redis_commands import Names
from oncekey.events.settings import BusSettings
from oncekey.stores.redis.client import AsyncClients

_SILENCE: Final = 10.0
_SHORTEST: Final = 0.05
_LONGEST: Final = 2.0
_log = logging.getLogger("oncekey.events")


class Wakeups:
    """A task that listens while readers wait, and reconnects whenever it is cut off."""

    def __init__(self, clients: AsyncClients, settings: BusSettings) -> None:
        names = Names(settings.domain)
        self._clients = clients
        self._channels = [names.nudge(shard) for shard in range(settings.shards)]
        self._waiting: dict[bytes, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    def enter(self, job: str) -> asyncio.Event:
        """Return an event that is set at each wake-up for this job."""
        heard = asyncio.Event()
        self._waiting.setdefault(job.encode(), set()).add(heard)
        if self._task is None:
            self._task = asyncio.create_task(self._listen())
        return heard

    async def leave(self, job: str, heard: asyncio.Event) -> None:
        """Stop setting the event. End the subscription with the last one."""
        together = self._waiting[job.encode()]
        together.discard(heard)
        if not together:
            del self._waiting[job.encode()]
        if self._waiting or self._task is None:
            return
        task, self._task = self._task, None
        while not task.done():  # redis-py on Python 3.11 may swallow a cancellation
            task.cancel()
            await asyncio.wait([task], timeout=1.0)

    async def _listen(self) -> None:
        pause, task = _SHORTEST, asyncio.current_task()
        while self._task is task:
            try:
                client = await self._clients.client()
                async with client.pubsub() as subscription:
                    await subscription.subscribe(*self._channels)
                    while self._task is task:
                        self._pass_on(await _heard(subscription))
                        pause = _SHORTEST
            except Exception as error:  # noqa: BLE001 - whatever it is, readers look by themselves
                if pause == _SHORTEST:
                    _log.warning("a subscription to %s broke: %s", self._clients.where, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST)

    def _pass_on(self, message: dict[str, Any]) -> None:
        """Wake the readers of the message's job, or all readers after a new subscription."""
        if message["type"] == "message":
            data = message["data"]
            job = data if isinstance(data, bytes) else str(data).encode()
            chosen = [self._waiting.get(job, set())]
        else:
            chosen = list(self._waiting.values())
        for together in chosen:
            for heard in together:
                heard.set()


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
