"""The router: it keeps the newest state of each job and wakes those who watch it.

Any number may run at once. Readers take events from the logs, so a router that dies or is late
costs time, and never an event.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterable
from time import monotonic
from typing import Any, Final, Unpack

from redis.exceptions import ResponseError

from oncekey.errors import ConfigurationError
from oncekey.events.bus import Options, settings_of
from oncekey.events.observing import Observer, Observers
from oncekey.events.opening import Where
from oncekey.events.redis_place import RedisPlace
from oncekey.events.router_shard import Reader, ShardRouter
from oncekey.policy import Duration, seconds
from oncekey.stores.redis.client import Clients
from oncekey.stores.redis.errors import CAUGHT, explain

_BLOCK: Final = 500
_SIGNALS: Final = 0.5
"""How long the handler of a signal, which runs in the thread of `run`, may have to wait."""
_TIDY: Final = 1.0
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_log = logging.getLogger("oncekey.events")


class Router:
    """Reads the streams of a domain in a consumer group, one thread for each shard."""

    def __init__(  # noqa: PLR0913 - each is a setting of its own
        self,
        where: Where,
        *,
        domain: str,
        group: str = "router",
        consumer: str | None = None,
        claim_after: Duration = "30s",
        max_deliveries: int = 5,
        observers: Iterable[Observer] = (),
        **options: Unpack[Options],
    ) -> None:
        """`where` is a URL or a client of redis-py. Nothing is sent yet.

        An entry that a router took and has not acknowledged after `claim_after` is handled by
        another. One that was delivered `max_deliveries` times, and fails, goes to the dead.
        """
        if not isinstance(max_deliveries, int) or max_deliveries < 1:
            raise ConfigurationError(f"max_deliveries must be 1 or more, not {max_deliveries!r}")
        settings = settings_of(domain, None, options)
        if isinstance(where, str) and not where.startswith(("redis://", "rediss://", "unix://")):
            msg = "a router reads streams of Redis; its URL starts with redis://, rediss:// or unix://"
            raise ConfigurationError(msg)  # what it is instead may hold a password
        self._clients = (
            Clients.of_url(where) if isinstance(where, str) else Clients.of_client(where)
        )
        told = Observers(settings.domain, observers)
        self._place = RedisPlace(self._clients, settings, told)
        self._period = seconds(claim_after, "claim_after")
        name = consumer or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        reader = Reader(group, name, max(1, round(self._period * 1000)), max_deliveries)
        self._shards = [
            ShardRouter(self._clients, settings, reader, shard, told)
            for shard in range(settings.shards)
        ]
        self._block = _block_of(self._clients.settings)
        self._stopped = threading.Event()
        self._broken: list[BaseException] = []

    def step(self) -> int:
        """What is there now is handled, without waiting; so many entries."""
        try:
            self._place.agree()
            for shard in self._shards:
                shard.join()
            handled = sum(shard.reclaim() for shard in self._shards)
            for shard in self._shards:
                while count := shard.take(None):
                    handled += count
                shard.tidy()
        except CAUGHT as error:
            raise explain(error, self._clients.where, sent_once=False) from error
        return handled

    def run(self) -> None:
        """Handles entries until `stop`, through every trouble of Redis."""
        threads = [
            threading.Thread(target=self._serve, args=(shard,), name=f"oncekey-router-{number}")
            for number, shard in enumerate(self._shards)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a signal that hits another thread cannot wake this one
                thread.join(_SIGNALS)
        if self._broken:
            raise self._broken[0]

    def stop(self) -> None:
        """`run` returns when the entries in hand are handled. May be called by a signal handler."""
        self._stopped.set()

    def close(self) -> None:
        """Our connections are closed."""
        self._clients.close()

    def _serve(self, shard: ShardRouter) -> None:
        try:
            self._until_stopped(shard)
        except BaseException as error:  # noqa: BLE001 - handed to whoever called run
            self._broken.append(error)
            self._stopped.set()

    def _until_stopped(self, shard: ShardRouter) -> None:
        pause, joined = _SHORTEST_PAUSE, False
        look = tidy = monotonic()
        while not self._stopped.is_set():
            try:
                if not joined:
                    self._place.agree()
                    shard.join()
                    joined = True
                if monotonic() >= look:
                    full = shard.reclaim()
                    look = monotonic() + (0 if full else self._period / 3)
                if monotonic() >= tidy:
                    shard.tidy()
                    tidy = monotonic() + _TIDY
                shard.take(self._block)
                pause = _SHORTEST_PAUSE
            except CAUGHT as error:
                joined = joined and not _group_is_gone(error)
                _log.warning("a router of %s waits: %s", self._clients.where, error)
                self._stopped.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        if joined:
            self._say_goodbye(shard)

    def _say_goodbye(self, shard: ShardRouter) -> None:
        try:
            shard.leave()
        except CAUGHT as error:  # whoever is left takes what we had, later
            _log.warning("a router of %s left without a word: %s", self._clients.where, error)


def _group_is_gone(error: Exception) -> bool:
    """After a loss of data, for example."""
    return isinstance(error, ResponseError) and "NOGROUP" in str(error)


def _block_of(settings: dict[str, Any] | None) -> int:
    """How long a read may block: shorter than the client waits for any answer."""
    longest = (settings or {}).get("socket_timeout")
    return _BLOCK if longest is None else max(1, min(_BLOCK, int(longest * 500)))
