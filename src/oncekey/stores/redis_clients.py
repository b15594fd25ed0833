"""The clients of redis-py that a store speaks through: the user's own, or ours for a URL."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from oncekey.errors import ConfigurationError
from oncekey.fork import renew_after_fork

_PATIENCE: Final = {"socket_connect_timeout": 5.0, "socket_timeout": 5.0}
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
    """One client for all threads; redis-py gives each command a connection of its own."""

    def __init__(self, client: Any, *, ours: bool) -> None:  # noqa: ANN401 - Redis or RedisCluster
        """Only a client of ours is ever closed."""
        self._client = client
        self._ours = ours
        self.where = _where(client)
        self.sent_once = _sent_once(client)

    @classmethod
    def of_client(cls, client: Any) -> Clients:  # noqa: ANN401 - Redis or RedisCluster
        """The user's own client; clients that were made already are given back."""
        if isinstance(client, Clients):
            return client
        if not callable(getattr(client, "execute_command", None)) or _awaits(client):
            raise _no_client(client, "RedisStore", "redis.Redis")
        return cls(client, ours=False)

    @classmethod
    def of_url(cls, url: str) -> Clients:
        """A client that sends each command once: the engine knows better when to send it again."""
        try:
            client = redis.Redis.from_url(url, **_PATIENCE, retry=Retry(NoBackoff(), 0))
        except ValueError as error:
            raise _no_url(url, error) from None
        return cls(client, ours=True)

    def client(self) -> Any:  # noqa: ANN401 - Redis or RedisCluster
        """The client to use."""
        return self._client

    def close(self) -> None:
        """Our connections are closed. The next command opens new ones."""
        if self._ours:
            self._client.close()

    def for_coroutines(self) -> AsyncClients | None:
        """Clients for event loops, of the same server; None where only this one knows the way."""
        pool = getattr(self._client, "connection_pool", None)
        kind = _CLASSES.get(getattr(pool, "connection_class", type(None)))
        if pool is None or kind is None:
            return None
        return AsyncClients(_maker(kind, pool.connection_kwargs), self.where)


class AsyncClients:
    """A client for each running event loop, closed when the loop ends; or the user's own."""

    def __init__(self, make: Callable[[], Any], where: str) -> None:
        """`make` is called on each loop."""
        self._make = make
        self._own: Any = None
        self._inherited: list[object] = []
        self.where = where
        self.sent_once = True
        self._opened: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[Any, AsyncGenerator[Any, None]]
        ] = WeakKeyDictionary()
        renew_after_fork(self)

    @classmethod
    def of_client(cls, client: Any) -> AsyncClients:  # noqa: ANN401 - Redis or RedisCluster
        """The user's own client, on the user's loop; clients made already are given back."""
        if isinstance(client, AsyncClients):
            return client
        if not _awaits(client):
            raise _no_client(client, "AsyncRedisStore", "redis.asyncio.Redis")
        clients = cls(lambda: client, _where(client))
        clients._own, clients.sent_once = client, _sent_once(client)
        return clients

    @classmethod
    def of_url(cls, url: str) -> AsyncClients:
        """Clients for a URL."""
        try:
            pool = redis.ConnectionPool.from_url(url, **_PATIENCE)
        except ValueError as error:
            raise _no_url(url, error) from None
        kind = _CLASSES[pool.connection_class]
        return cls(_maker(kind, pool.connection_kwargs), _place(pool.connection_kwargs))

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


def _maker(kind: type[Any], settings: dict[str, Any]) -> Callable[[], Any]:
    shared = {name: value for name, value in settings.items() if name in _SHARED}

    def make() -> Any:  # noqa: ANN401 - generic in redis-py's stubs
        pool: Any = redis.asyncio.ConnectionPool(
            connection_class=kind, retry=AsyncRetry(NoBackoff(), 0), **shared
        )
        return redis.asyncio.Redis.from_pool(pool)

    return make


def _awaits(client: object) -> bool:
    return inspect.iscoroutinefunction(getattr(client, "execute_command", None))


def _no_client(client: object, store: str, wanted: str) -> ConfigurationError:
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    return ConfigurationError(
        f"{store} takes a client such as {wanted}, not {kind}; for a URL use {store}.from_url"
    )


def _no_url(url: str, error: ValueError) -> ConfigurationError:
    scheme = url.partition("://")[0]  # the rest may hold a password
    return ConfigurationError(
        f"the {scheme}:// URL of the store cannot be read ({error}); write "
        f"redis://user:password@host:6379/0, rediss:// for TLS, or unix:///path/to/redis.sock"
    )


def _where(client: Any) -> str:  # noqa: ANN401 - any client of redis-py
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return "its cluster"
    service = getattr(pool, "service_name", None)  # Sentinel knows the address, and changes it
    return _place(pool.connection_kwargs) if service is None else f"{service} of Sentinel"


def _place(settings: dict[str, Any]) -> str:
    if "path" in settings:
        return str(settings["path"])
    return f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def _sent_once(client: Any) -> bool:  # noqa: ANN401 - any client of redis-py
    get_retry = getattr(client, "get_retry", None)
    retry = get_retry() if get_retry is not None else None
    return retry is not None and getattr(retry, "_retries", 1) == 0
