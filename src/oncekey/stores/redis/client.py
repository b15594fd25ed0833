"""The clients of redis-py that a store uses: the caller's own, or ours for a URL.

Blocking code has one for the process, coroutines have one for each event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ConnectionError,  # noqa: A004 - redis-py calls it so
    RedisClusterException,
    RedisError,
    TimeoutError,  # noqa: A004 - the same
)
from redis.retry import Retry

from oncekey.compat import leave_alone, renew_after_fork, running_loop
from oncekey.errors import ConfigurationError
from oncekey.stores.base import checked_fast
from oncekey.stores.redis.connection import (
    PATIENCE,
    WHAT_FOR,
    AsyncLine,
    Line,
    Lines,
    Packer,
    Words,
    call_of,
    close_line,
    leaves_whole,
    open_line,
    pack,
    pack_script,
)
from oncekey.stores.redis.connection_async import Wires
from oncekey.stores.redis.errors import elsewhere
from oncekey.stores.redis.pubsub import AsyncEars, Ears, Seats, listening, listening_async
from oncekey.stores.url import check_url, safe_url

_PLAIN: Final[tuple[Any, ...]] = (
    (redis.Redis, redis.ConnectionPool),
    (redis.asyncio.Redis, redis.asyncio.ConnectionPool),
    (redis.asyncio.Redis, redis.asyncio.BlockingConnectionPool),
)
# With these settings redis-py checks a connection now and then, when it is taken or released.
_LOOKED_AFTER: Final = ("credential_provider", "health_check_interval")
# Where redis-py raises one of these itself, it has closed the connection, or read the whole reply.
_IN_ORDER: Final = (RedisError, RedisClusterException)


def awaits(client: object) -> bool:
    """Return whether the client's commands are coroutines."""
    return inspect.iscoroutinefunction(getattr(client, "execute_command", None))


def no_client(client: object, store: str, wanted: str) -> ConfigurationError:
    """Return the error for an object that is not a client, or one for the other kind of code."""
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    return ConfigurationError(
        f"{store} takes a client such as {wanted}, not {kind}; for a URL use {store}.from_url"
    )


def _pool_of(url: str, **options: Any) -> Any:
    """Return a pool for the URL. Raise ConfigurationError if it cannot be understood.

    redis-py takes database 0 where the URL has something else than a number, and refuses an unknown
    option only when it connects.
    """
    check_url(url)
    try:
        parts = urlsplit(url)
        number = parts.path.strip("/")
        if parts.scheme != "unix" and number and not number.isdecimal():
            raise ValueError(f"the database is {number!r}, which is no number")  # noqa: TRY301 - as those of redis-py
        pool = redis.ConnectionPool.from_url(url, **WITH_PATIENCE, **options)
        pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the URL {safe_url(url)!r} of the store cannot be used: {_wrong(error, url)}; write "
            f"redis://user:password@host:6379/0, rediss:// for TLS, or unix:///path/to/redis.sock"
        ) from None
    return pool


def _wrong(error: Exception, url: str) -> str:
    """Return what is wrong with a URL. Other texts than these may quote a password."""
    text = str(error)
    unknown = re.search("unexpected keyword argument '(.*)'", text)
    if unknown and "password" in url:  # of which it may be a part, behind a & that is not encoded
        return "it has an unknown option"
    if unknown:
        return f"it has the unknown option {unknown[1]!r}"
    known = re.match("the database is .* no number$|[Ii]nvalid value for '[a-z_]+'", text)
    return known[0] if known else "it is no URL"


def where_is(client: Any) -> str:
    """Return the address of the client's server, for messages."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return "its cluster"
    service = getattr(pool, "service_name", None)  # Sentinel knows the address, and may change it
    return place_of(pool.connection_kwargs) if service is None else f"{service} of Sentinel"


def place_of(settings: dict[str, Any]) -> str:
    """Return the address in the settings of a connection."""
    if "path" in settings:
        return str(settings["path"])
    return f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def settings_of(client: Any) -> dict[str, Any] | None:
    """Return the settings of its connections, or None for a cluster, which has many pools."""
    pool = getattr(client, "connection_pool", None)
    return None if pool is None else pool.connection_kwargs


def connections_of(client: Any) -> int:
    """Return how many connections a plain client may open, or 0 for any other client.

    Only a plain client may be bypassed. A subclass may change how commands are sent, and a pool
    that blocks counts the connections that it lends.
    """
    pool: Any = getattr(client, "connection_pool", None)
    if (type(client), type(pool)) not in _PLAIN or client.connection is not None:
        return 0
    settings = pool.connection_kwargs
    if getattr(pool, "cache", None) is not None or any(map(settings.get, _LOOKED_AFTER)):
        return 0
    return int(pool.max_connections)


def sends_once(client: Any) -> bool:
    """Return whether the client certainly does not retry by itself."""
    get_retry = getattr(client, "get_retry", None)
    retry = get_retry() if get_retry is not None else None
    return retry is not None and getattr(retry, "_retries", 1) == 0


def _pools_of(client: Any) -> list[Any]:
    """Return what has the idle connections of a client: its pool, or one for each node."""
    pool = getattr(client, "connection_pool", None)
    if pool is not None:
        return [pool]
    nodes = [getattr(node, "redis_connection", None) for node in client.get_nodes()]
    return [node.connection_pool for node in nodes if node is not None]


# An exception can come between any two lines: a handler of a signal raises it, such as that of a
# time limit. redis-py then puts a connection back into its pool as if nothing had happened, whether
# its handshake was complete or not, and with a reply that nobody has read. The next command would
# go to the wrong database, or take an answer that belongs to another. So the connections of our own
# clients close when they are cut off while they connect; a line is closed unless its reply was
# read; and what redis-py sends by itself closes all idle connections when it is cut off.


class _ClosedWhenCutOff:
    """A connection that is open only if its handshake was complete."""

    def connect(self) -> None:
        """Connect. Newer releases do it in the other method, which they also call directly."""
        try:
            super().connect()  # type: ignore[misc]  # a class of redis-py stands beside this one
        except BaseException:
            self.disconnect()
            raise

    def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Connect, as newer releases do."""
        try:
            super().connect_check_health(*args, **options)  # type: ignore[misc]  # the same
        except BaseException:
            self.disconnect()
            raise

    def activate_maint_notifications_handling_if_enabled(self, **_: Any) -> None:
        """Do not ask for notices of maintenance, which only Redis Enterprise sends.

        Other servers refuse, and redis-py then takes the lock of `logging` on each connection. An
        exception that a signal raises there leaves it locked for ever, until Python 3.13.
        """

    if TYPE_CHECKING:

        def disconnect(self) -> None: ...


class _AsyncClosedWhenCutOff:
    """The same for coroutines."""

    async def connect(self) -> None:
        """Connect."""
        try:
            await super().connect()  # type: ignore[misc]  # the same
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    async def connect_check_health(self, *args: Any, **options: Any) -> None:
        """Connect, as newer releases do."""
        try:
            await super().connect_check_health(*args, **options)  # type: ignore[misc]  # the same
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    if TYPE_CHECKING:

        async def disconnect(self, *, nowait: bool) -> None: ...


# The clients for coroutines: one for each event loop, or the caller's own.
#
# The connections of a plain client are used directly, as wires, which all coroutines of a loop
# share. A client of Sentinel or of a cluster knows where a command has to go, so it sends the
# commands.


WITH_PATIENCE: Final = {"socket_connect_timeout": PATIENCE, "socket_timeout": PATIENCE}
"""The time-outs that apply unless the caller has set others."""
# Wires take two connections for good. A smaller pool has none to spare.
_FEWEST: Final = 4
_KINDS: Final = ("Connection", "SSLConnection", "UnixDomainSocketConnection")
_OURS: Final[dict[type, type[Any]]] = {
    getattr(redis, name): type(name, (_ClosedWhenCutOff, getattr(redis, name)), {})
    for name in _KINDS
}
_OURS_ASYNC: Final[dict[type, type[Any]]] = {
    kind: type(name, (_AsyncClosedWhenCutOff, getattr(redis.asyncio, name)), {})
    for name in _KINDS
    for kind in (getattr(redis, name), _OURS[getattr(redis, name)])
}
"""The async class for each class of connections."""
# Settings that have the same meaning for both kinds of connections. Others hold objects of one
# kind.
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


class AsyncClients:
    """A client for each running event loop, closed when the loop ends; or the caller's own."""

    def __init__(
        self,
        make: Callable[[], Any],
        where: str,
        settings: dict[str, Any] | None,
        *,
        fast: bool = True,
    ) -> None:
        """Call `make` on each loop for a client with these settings.

        Without `fast` every command goes through redis-py.
        """
        self._make = make
        self._fast = checked_fast(fast)
        self._own: Any = None
        self.where = where
        self.settings = settings
        self.sent_once = True
        self._opened: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]
        ] = WeakKeyDictionary()
        self._seats: WeakKeyDictionary[object, Seats] = WeakKeyDictionary()
        self._all_wires: WeakKeyDictionary[asyncio.AbstractEventLoop, Wires | None]
        self._all_wires = WeakKeyDictionary()
        # The wires of the loop that asked last, which is most likely the one that asks next.
        # None if there are none, or if what breaks on them is sent again by redis-py.
        self._wires: Wires | None = None
        renew_after_fork(self)

    @classmethod
    def of_client(cls, client: Any, *, fast: bool = True) -> AsyncClients:
        """Wrap the caller's client, for the caller's loop. Return an `AsyncClients` as it is."""
        if isinstance(client, AsyncClients):
            return client
        if not awaits(client):
            raise no_client(client, "AsyncRedisStore", "redis.asyncio.Redis")
        clients = cls(lambda: client, where_is(client), settings_of(client), fast=fast)
        clients._own, clients.sent_once = client, sends_once(client)
        return clients

    @classmethod
    def of_url(cls, url: str, *, fast: bool = True) -> AsyncClients:
        """Create clients for a URL. Raise ConfigurationError if it is not valid."""
        pool = _pool_of(url)
        kind = _OURS_ASYNC[pool.connection_class]
        settings = pool.connection_kwargs
        most = pool.max_connections
        return cls(maker(kind, settings, most), place_of(settings), settings, fast=fast)

    async def client(self) -> Any:
        """Return the client of the running loop."""
        if self._own is not None:
            return self._own
        loop = running_loop()
        opened = self._opened.get(loop)
        if opened is None:
            opening = self._open(loop)
            opened = self._opened[loop] = await anext(opening), opening
        return opened[0]

    async def facts(self) -> Any:
        """Return what the server says about itself.

        Over wires, many tasks that ask first do not open a connection each.
        """
        client = await self.client()
        if self._wired(client) is None:
            async with self.using() as client:
                return await client.info("server")
        return _facts(await self.ask(("INFO", "server")))

    def ask(self, words: Words, *, apart: bool = False) -> Awaitable[Any]:
        """Return the reply to one command. A client that retries by itself does so here too.

        A command that is sent `apart` does not delay others, and is not delayed by them.
        """
        wires = self._wires
        if wires is not None and wires.loop is running_loop():
            return wires.send(pack(words), apart=apart)
        return self._ask(words, apart=apart)

    def run(
        self, sha: bytes, name: bytes, arguments: tuple[bytes, ...], *, apart: bool = False
    ) -> Awaitable[Any]:
        """Do the same for a script with one key, which the server knows by its hash."""
        wires = self._wires
        if wires is not None and wires.loop is running_loop():
            return wires.send(pack_script(sha, name, arguments), apart=apart)
        return self._ask(call_of(sha, name, arguments), apart=apart)

    async def _ask(self, words: Words, *, apart: bool) -> Any:
        client = await self.client()
        wires = self._wired(client)
        if wires is not None:
            try:
                return await wires.send(pack(words), apart=apart)
            except (ConnectionError, TimeoutError):
                if self.sent_once:
                    raise
        async with self.using() as client:
            return await client.execute_command(*words, NEVER_DECODE=True)

    @asynccontextmanager
    async def using(self) -> AsyncIterator[Any]:
        """Lend the client to the block. If that is cut off, close the idle connections.

        Close them also if another server may be the primary now. A cluster finds it by itself.
        """
        client = await self.client()
        try:
            yield client
        except (*_IN_ORDER, asyncio.CancelledError) as error:  # redis-py is prepared for these
            if elsewhere(error) and (pool := getattr(client, "connection_pool", None)) is not None:
                await pool.disconnect(inuse_connections=False)
            raise
        except AttributeError as error:  # a node of a cluster closed it, another task used it
            raise ConnectionError(f"redis-py lost the connection ({error})") from error
        except BaseException:
            for pool in _pools_of(client):
                await pool.disconnect(inuse_connections=False)
            raise

    def _wired(self, client: Any) -> Wires | None:
        """Return the wires of the running loop, or None for a client that must send by itself."""
        loop = running_loop()
        if loop not in self._all_wires:
            plain = self._fast and connections_of(client) >= _FEWEST
            self._all_wires[loop] = Wires(client.connection_pool) if plain else None
        wires = self._all_wires[loop]
        self._wires = wires if self.sent_once else None
        return wires

    @asynccontextmanager
    async def held(self) -> AsyncIterator[AsyncLine]:
        """Hold one connection for several commands."""
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
        """Listen to the channel in the block, if possible."""
        async with self.using() as client:
            seats = self._seats.setdefault(client, Seats(connections_of(client)))
            async with listening_async(client, channel, seats) as ears:
                yield ears

    async def aclose(self) -> None:
        """Close the connections of the running loop. Other loops close theirs."""
        loop = running_loop()
        await self._unwire(loop)
        opened = self._opened.get(loop)
        if opened is not None:
            await opened[1].aclose()

    async def _unwire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wires = None
        wires = self._all_wires.pop(loop, None)
        if wires is not None:
            await wires.aclose()

    async def _open(self, loop: asyncio.AbstractEventLoop) -> AsyncGenerator[Any, None]:
        """Yield a client. A loop that ends closes its open generators, and so the client."""
        client = self._make()
        try:
            yield client
        finally:
            self._opened.pop(loop, None)
            await self._unwire(loop)
            await client.aclose()

    def after_fork(self) -> None:
        """Drop the parent's connections without closing them."""
        leave_alone(self._opened, self._all_wires, self._wires)
        self._opened = WeakKeyDictionary()
        self._all_wires = WeakKeyDictionary()
        self._wires = None
        self._seats = WeakKeyDictionary()


def _facts(said: bytes) -> dict[str, str]:
    """Return what the reply to INFO says."""
    lines = said.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def maker(kind: type[Any], settings: dict[str, Any], most: int) -> Callable[[], Any]:
    """Return a function that creates clients which send each command once."""
    shared = {name: value for name, value in settings.items() if name in _SHARED}

    def make() -> Any:
        pool: Any = redis.asyncio.BlockingConnectionPool(
            max_connections=most,
            timeout=PATIENCE,
            connection_class=kind,
            retry=AsyncRetry(NoBackoff(), 0),
            **shared,
        )
        return redis.asyncio.Redis.from_pool(pool)

    return make


# The client for blocking code: the caller's own, or ours for a URL.
#
# The connections of a plain client are used directly, as lines. A client of Sentinel or of a
# cluster knows where a command has to go, so it sends the commands.


# Of a pool that others use too, only some connections are kept: a quarter, and at most 16.
_PART_KEPT: Final = 4
_MOST_KEPT: Final = 16


class Clients:
    """One client for all threads."""

    def __init__(self, client: Any, *, ours: bool, fast: bool) -> None:
        """Use the client. It is closed only if it is ours.

        Without `fast` every command goes through redis-py.
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
    def of_client(cls, client: Any, *, fast: bool = True) -> Clients:
        """Wrap the caller's own client. Return a `Clients` as it is."""
        if isinstance(client, Clients):
            return client
        if not callable(getattr(client, "execute_command", None)) or awaits(client):
            raise no_client(client, "RedisStore", "redis.Redis")
        return cls(client, ours=False, fast=fast)

    @classmethod
    def of_url(cls, url: str, *, fast: bool = True) -> Clients:
        """Create a client that sends each command once: the engine knows better when to retry."""
        pool = _pool_of(url, retry=Retry(NoBackoff(), 0), command_packer=Packer())
        pool.connection_class = _OURS[pool.connection_class]
        return cls(redis.Redis.from_pool(pool), ours=True, fast=fast)

    def client(self) -> Any:
        """Return the client, after all idle lines were given back to its pool."""
        if self._lines is not None:
            self._lines.call_in()
        return self._client

    def facts(self) -> Any:
        """Return what the server says about itself. Only the first of many callers asks it."""
        with self._first:
            if self._facts is None:
                if self._lines is not None:
                    self._facts = _facts(self.ask(("INFO", "server")))
                else:
                    with self.using() as client:
                        self._facts = client.info("server")
            return self._facts

    @property
    def settings(self) -> dict[str, Any] | None:
        """The settings of the connections, or None for a cluster, which has many pools."""
        return settings_of(self._client)

    def ask(self, words: Words, *, apart: bool = False) -> Any:  # noqa: ARG002 - any reply; a command always has a line to itself
        """Return the reply to one command. A client that retries by itself does so here too."""
        if self._lines is not None:
            try:
                return self._lines.send(pack(words))
            except (ConnectionError, TimeoutError):
                if self.sent_once:
                    raise
        return self._ask(words)

    def run(
        self,
        sha: bytes,
        name: bytes,
        arguments: tuple[bytes, ...],
        *,
        apart: bool = False,  # noqa: ARG002 - as above
    ) -> Any:
        """Do the same for a script with one key, which the server knows by its hash."""
        if self._lines is not None:
            try:
                return self._lines.send(pack_script(sha, name, arguments))
            except (ConnectionError, TimeoutError):
                if self.sent_once:
                    raise
        return self._ask(call_of(sha, name, arguments))

    def _ask(self, words: Words) -> Any:
        with self.using() as client:
            return client.execute_command(*words, NEVER_DECODE=True)

    @contextmanager
    def using(self) -> Iterator[Any]:
        """Lend the client to the block. If that is cut off, close the idle connections.

        Close them also if another server may be the primary now. A cluster finds it by itself.
        """
        client = self.client()
        try:
            yield client
        except _IN_ORDER as error:
            if elsewhere(error) and (pool := getattr(client, "connection_pool", None)) is not None:
                pool.disconnect(inuse_connections=False)
            raise
        except BaseException:
            for pool in _pools_of(client):
                pool.disconnect(inuse_connections=False)
            raise

    @contextmanager
    def held(self) -> Iterator[Line]:
        """Hold one connection for several commands."""
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

    @contextmanager
    def listening(self, channel: bytes) -> Iterator[Ears]:
        """Listen to the channel in the block, if possible."""
        with self.using() as client, listening(client, channel, self._seats) as ears:
            yield ears

    def close(self) -> None:
        """Close our own connections. The next command opens new ones."""
        client = self.client()
        if self._ours:
            client.close()

    def after_fork(self) -> None:
        """Start with new locks and counters: no thread of the child uses the client yet."""
        self._seats = Seats(self._connections)
        self._first = threading.Lock()

    def for_coroutines(self) -> AsyncClients | None:
        """Return clients for event loops, or None if only this one can find the server."""
        pool = getattr(self._client, "connection_pool", None)
        kind = _OURS_ASYNC.get(getattr(pool, "connection_class", type(None)))
        if pool is None or kind is None:
            return None
        make = maker(kind, pool.connection_kwargs, pool.max_connections)
        return AsyncClients(make, self.where, self.settings, fast=self._fast)
