"""The client of redis-py that a store speaks through: the user's own, or ours for a URL.

A plain client is spoken to over lines out of its pool. One of Sentinel or of a cluster knows by
itself where a command has to go, and is left to do so.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError  # noqa: A004 - redis-py calls them so
from redis.retry import Retry

from oncekey.compat import renew_after_fork
from oncekey.stores.fast import checked_fast
from oncekey.stores.redis_ears import Ears, Seats, listening
from oncekey.stores.redis_facts import (
    awaits,
    connections_of,
    no_client,
    no_url,
    sends_once,
    settings_of,
    where_is,
)
from oncekey.stores.redis_line import Line, Words
from oncekey.stores.redis_lines import Lines, close_line, leaves_whole, open_line
from oncekey.stores.redis_loops import CLASSES, WITH_PATIENCE, AsyncClients, maker

# Of a pool that others use too, only so many connections are kept back: a part, and never many.
_PART_KEPT: Final = 4
_MOST_KEPT: Final = 16


class Clients:
    """One client for all threads."""

    def __init__(self, client: Any, *, ours: bool, fast: bool) -> None:  # noqa: ANN401 - Redis or RedisCluster
        """Only a client of ours is ever closed.

        Where it is not to be fast, every command goes through redis-py.
        """
        self._client = client
        self._ours = ours
        self._fast = checked_fast(fast)
        self.where = where_is(client)
        self.sent_once = sends_once(client)
        self._connections = connections_of(client)
        most = self._connections if ours else min(_MOST_KEPT, self._connections // _PART_KEPT)
        self._lines = Lines(client.connection_pool, most) if fast and self._connections else None
        self._seats = Seats(self._connections)
        self._first = threading.Lock()
        self._facts: Any = None
        renew_after_fork(self)

    @classmethod
    def of_client(cls, client: Any, *, fast: bool = True) -> Clients:  # noqa: ANN401 - Redis or RedisCluster
        """The user's own client; clients that were made already are given back."""
        if isinstance(client, Clients):
            return client
        if not callable(getattr(client, "execute_command", None)) or awaits(client):
            raise no_client(client, "RedisStore", "redis.Redis")
        return cls(client, ours=False, fast=fast)

    @classmethod
    def of_url(cls, url: str, *, fast: bool = True) -> Clients:
        """A client that sends each command once: the engine knows better when to send it again."""
        try:
            client = redis.Redis.from_url(url, **WITH_PATIENCE, retry=Retry(NoBackoff(), 0))
        except ValueError as error:
            raise no_url(url, error) from None
        return cls(client, ours=True, fast=fast)

    def client(self) -> Any:  # noqa: ANN401 - Redis or RedisCluster
        """The client itself, whose pool has back what it may need."""
        if self._lines is not None:
            self._lines.call_in()
        return self._client

    def facts(self) -> Any:  # noqa: ANN401 - as redis-py parses it
        """What the server says about itself, asked once, however many call first."""
        with self._first:
            if self._facts is None:
                self._facts = self.client().info("server")
            return self._facts

    @property
    def settings(self) -> dict[str, Any] | None:
        """How its connections are made; None for a cluster, which has many pools."""
        return settings_of(self._client)

    def ask(self, words: Words, *, apart: bool = False) -> Any:  # noqa: ANN401, ARG002 - any reply; a command always has a line to itself
        """The reply to one command. A client that tries again by itself does so here too."""
        if self._lines is not None:
            try:
                return self._lines.ask(words)
            except (ConnectionError, TimeoutError):
                if self.sent_once:
                    raise
        return self._client.execute_command(*words, NEVER_DECODE=True)

    @contextmanager
    def held(self) -> Iterator[Line]:
        """One line for several commands."""
        pool = self.client().connection_pool
        line = open_line(pool)
        whole = True
        try:
            yield line
        except BaseException as error:
            whole = leaves_whole(error)
            raise
        finally:
            close_line(pool, line, whole=whole)

    def listening(self, channel: bytes) -> AbstractContextManager[Ears]:
        """In the block the channel is listened to, where that can be."""
        return listening(self.client(), channel, self._seats)

    def close(self) -> None:
        """Our connections are closed. The next command opens new ones."""
        client = self.client()
        if self._ours:
            client.close()

    def after_fork(self) -> None:
        """In a child nobody listens or asks yet."""
        self._seats = Seats(self._connections)
        self._first = threading.Lock()

    def for_coroutines(self) -> AsyncClients | None:
        """Clients for event loops, of the same server; None where only this one knows the way."""
        pool = getattr(self._client, "connection_pool", None)
        kind = CLASSES.get(getattr(pool, "connection_class", type(None)))
        if pool is None or kind is None:
            return None
        make = maker(kind, pool.connection_kwargs, pool.max_connections)
        return AsyncClients(make, self.where, self.settings, fast=self._fast)
