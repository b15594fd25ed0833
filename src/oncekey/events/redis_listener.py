"""What blocking code hears of jobs and topics in Redis: one subscription, which may break."""

from __future__ import annotations

import logging
from time import sleep
from typing import Any, Self

from oncekey.events import redis_commands as replies
from oncekey.events.redis_commands import Names
from oncekey.stores.redis.client import Clients

_log = logging.getLogger("oncekey.events")


class RedisListener:
    """A subscription to the channels of jobs and topics. `Wakeups` is the same for coroutines."""

    def __init__(self, clients: Clients, names: Names) -> None:
        """Subscribe to nothing yet."""
        self._clients = clients
        self._names = names
        self._channels: dict[bytes, str] = {}
        self._subscription: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def hear(self, name: str, shard: int, /) -> None:
        """Hear of the job, or of all jobs of a topic."""
        channel = self._names.channel(shard, name).encode()
        self._channels[channel] = name
        self._tell("subscribe", channel)

    def ignore(self, name: str, shard: int, /) -> None:
        """Hear of it no more."""
        channel = self._names.channel(shard, name).encode()
        del self._channels[channel]
        self._tell("unsubscribe", channel)

    def wait(self, seconds: float, /) -> set[str]:
        """Return what may have grown, as soon as anything may have, or nothing in time.

        A channel that was subscribed to just now is in it: what came before was not heard.
        """
        heard: set[str] = set()
        new = self._subscription is None
        try:
            if new:
                self._subscription = self._clients.client().pubsub()
                self._subscription.subscribe(*self._channels)
            message = self._subscription.get_message(timeout=seconds)
            while message is not None:
                channel = message["channel"]
                name = self._channels.get(
                    channel if isinstance(channel, bytes) else str(channel).encode()
                )
                if name is not None and message["type"] in ("message", "subscribe"):
                    heard.add(name)
                message = self._subscription.get_message(timeout=0)
        except replies.TROUBLE as error:
            self._broke(error)
            if new:  # one that has stood is made again at once
                sleep(min(1.0, seconds))
        return heard

    def _tell(self, verb: str, channel: bytes) -> None:
        if self._subscription is not None:
            try:
                getattr(self._subscription, verb)(channel)
            except replies.TROUBLE as error:
                self._broke(error)

    def _broke(self, error: Exception) -> None:
        _log.debug("a subscription to %s broke: %s", self._clients.where, error)
        self._close()

    def _close(self) -> None:
        gone, self._subscription = self._subscription, None
        if gone is not None:
            gone.close()
