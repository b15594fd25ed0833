"""The clients of redis-py that a store speaks through: the user's own, or ours for a URL.

A plain client is spoken to over lines out of its pool. One of Sentinel or of a cluster knows by
itself where a command has to go, and is left to do so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Final
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, TimeoutError  # noqa: A004 - redis-py calls them so
from redis.retry import Retry

from oncekey.fork import renew_after_fork
from oncekey.stores.redis_ears import AsyncEars, Ears, Seats, listening, listening_async
from oncekey.stores.redis_facts import (
    awaits,
    connections_of,
    no_client,
    no_url,
    place_of,
    sends_once,
    settings_of,
    where_is,
)
from oncekey.stores.redis_line import AsyncLine, Line, Words
from oncekey.stores.redis_lines import (
    PATIENCE,
    WHAT_FOR,
    Lines,
    close_line,
    leaves_whole,
    open_line,
)

_PATIENCE: Final = {"socket_connect_timeout": PATIENCE, "socket_timeout": PATIENCE}
# Of a pool that others use too, only so many connections are kept back: a part, and never many.
_PART_KEPT: Final = 4
_MOST_KEPT: Final = 16
_CLASSES: Final[dict[type, type[Any]]] = {
    redis.Connection: redis.asyncio.Connection,
    redis.SSLConnection: redis.asyncio.SSLConnection,
    redis.UnixDomainSocketConnection: redis.asyncio.UnixDomainSocketConnection,
}
# Settings that mean the same in both colours. Others hold objects of one colour.
_SHARED: Final = frozenset(
    {
        *("host", "port", "path", "db", "username", "password", "credential_provider"),
        *("client_name", "protocol", "health_check_interval"),
        *("socket_timeout", "socket_connect_timeout"),
        *("socket_keepalive", "socket_keepalive_options"),
        *("ssl_keyfile", "ssl_certfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"),
        *("ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_min_version", "ssl_ciphers"),
    }
)


class Clients:
    """One client for all threads."""

    def __init__(self, client: Any, *, ours: bool) -> None:  # noqa: ANN401 - Redis or RedisCluster
        """Only a client of ours is ever closed."""
        self._client = client
        self._ours = ours
        self.where = where_is(client)
        self.sent_once = sends_once(client)
        self._connections = connections_of(client)
        most = self._connections if ours else min(_MOST_KEPT, self._connections // _PART_KEPT)
        self._lines = Lines(client.connection_pool, most) if self._connections else None
        self._seats = Seats(self._connections)
        self._first = threading.Lock()
        self._facts: Any = None
        renew_after_fork(self)

    @classmethod
    def of_client(cls, client: Any) -> Clients:  # noqa: ANN401 - Redis or RedisCluster
        """The user's own client; clients that were made already are given back."""
        if isinstance(client, Clients):
            return client
        if not callable(getattr(client, "execute_command", None)) or awaits(client):
            raise no_client(client, "RedisStore", "redis.Redis")
        return cls(client, ours=False)

    @classmethod
    def of_url(cls, url: str) -> Clients:
        """A client that sends each command once: the engine knows better when to send it again."""
        try:
            client = redis.Redis.from_url(url, **_PATIENCE, retry=Retry(NoBackoff(), 0))
        except ValueError as error:
            raise no_url(url, error) from None
        return cls(client, ours=True)

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

    def ask(self, words: Words) -> Any:  # noqa: ANN401 - whatever the server replies
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
        kind = _CLASSES.get(getattr(pool, "connection_class", type(None)))
        if pool is None or kind is None:
            return None
        make = _maker(kind, pool.connection_kwargs, pool.max_connections)
        return AsyncClients(make, self.where, self.settings)


class AsyncClients:
    """A client for each running event loop, closed when the loop ends; or the user's own."""

    def __init__(
        self, make: Callable[[], Any], where: str, settings: dict[str, Any] | None
    ) -> None:
        """`make` is called on each loop; the client that it makes has these settings."""
        self._make = make
        self._own: Any = None
        self._inherited: list[object] = []
        self.where = where
        self.settings = settings
        self.sent_once = True
        self._opened: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]
        ] = WeakKeyDictionary()
        self._seats: WeakKeyDictionary[object, Seats] = WeakKeyDictionary()
        renew_after_fork(self)

    @classmethod
    def of_client(cls, client: Any) -> AsyncClients:  # noqa: ANN401 - Redis or RedisCluster
        """The user's own client, on the user's loop; clients made already are given back."""
        if isinstance(client, AsyncClients):
            return client
        if not awaits(client):
            raise no_client(client, "AsyncRedisStore", "redis.asyncio.Redis")
        clients = cls(lambda: client, where_is(client), settings_of(client))
        clients._own, clients.sent_once = client, sends_once(client)
        return clients

    @classmethod
    def of_url(cls, url: str) -> AsyncClients:
        """Clients for a URL."""
        try:
            pool = redis.ConnectionPool.from_url(url, **_PATIENCE)
        except ValueError as error:
            raise no_url(url, error) from None
        kind = _CLASSES[pool.connection_class]
        settings = pool.connection_kwargs
        most = pool.max_connections
        return cls(_maker(kind, settings, most), place_of(settings), settings)

    async def client(self) -> Any:  # noqa: ANN401 - as the maker makes it
        """The client of the running loop."""
        if self._own is not None:
            return self._own
        loop = asyncio.get_running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            opening = self._open(loop)
            opened = self._opened[loop] = await anext(opening), opening
        return opened[0]

    async def facts(self) -> Any:  # noqa: ANN401 - as redis-py parses it
        """What the server says about itself."""
        client = await self.client()
        return await client.info("server")

    async def ask(self, words: Words) -> Any:  # noqa: ANN401 - whatever the server replies
        """The reply to one command."""
        client = await self.client()
        return await client.execute_command(*words, NEVER_DECODE=True)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[AsyncLine]:
        """One line for several commands."""
        client = await self.client()
        pool = client.connection_pool
        line = AsyncLine(await pool.get_connection(*WHAT_FOR))
        try:
            yield line
        except BaseException as error:
            if not leaves_whole(error):
                await line.connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(line.connection)

    @asynccontextmanager
    async def listening(self, channel: bytes) -> AsyncIterator[AsyncEars]:
        """In the block the channel is listened to, where that can be."""
        client = await self.client()
        seats = self._seats.setdefault(client, Seats(connections_of(client)))
        async with listening_async(client, channel, seats) as ears:
            yield ears

    async def aclose(self) -> None:
        """The connections of the running loop are closed. Other loops close theirs."""
        opened = self._opened.get(asyncio.get_running_loop())
        if opened is not None:
            await opened[1].aclose()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[Any, None]:
        """A generator, because a loop that ends closes those that it has not seen the end of."""
        client = self._make()
        try:
            yield client
        finally:
            self._opened.pop(loop, None)
            await client.aclose()

    def after_fork(self) -> None:
        """The parent's connections are never touched again, not even to close them."""
        self._inherited.append(self._opened)
        self._opened = WeakKeyDictionary()
        self._seats = WeakKeyDictionary()


def _maker(kind: type[Any], settings: dict[str, Any], most: int) -> Callable[[], Any]:
    shared = {name: value for name, value in settings.items() if name in _SHARED}

    def make() -> Any:  # noqa: ANN401 - generic in redis-py's stubs
        pool: Any = redis.asyncio.BlockingConnectionPool(
            max_connections=most,
            timeout=PATIENCE,
            connection_class=kind,
            retry=AsyncRetry(NoBackoff(), 0),
            **shared,
        )
        return redis.asyncio.Redis.from_pool(pool)

    return make
