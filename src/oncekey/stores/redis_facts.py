"""What a client of redis-py tells about itself, and what is said where it is none."""

from __future__ import annotations

import inspect
from typing import Any, Final

import redis
import redis.asyncio

from oncekey.errors import ConfigurationError

_PLAIN: Final[tuple[Any, ...]] = (
    (redis.Redis, redis.ConnectionPool),
    (redis.asyncio.Redis, redis.asyncio.ConnectionPool),
    (redis.asyncio.Redis, redis.asyncio.BlockingConnectionPool),
)
# With these redis-py does something to a connection now and then, when it is lent or given back.
_LOOKED_AFTER: Final = ("credential_provider", "health_check_interval")


def awaits(client: object) -> bool:
    """Whether its commands are coroutines."""
    return inspect.iscoroutinefunction(getattr(client, "execute_command", None))


def no_client(client: object, store: str, wanted: str) -> ConfigurationError:
    """The error for something that is no client of this colour."""
    kind = f"{type(client).__module__}.{type(client).__qualname__}"
    return ConfigurationError(
        f"{store} takes a client such as {wanted}, not {kind}; for a URL use {store}.from_url"
    )


def no_url(url: str, error: ValueError) -> ConfigurationError:
    """The error for a URL that redis-py does not understand."""
    scheme = url.partition("://")[0]  # the rest may hold a password
    return ConfigurationError(
        f"the {scheme}:// URL of the store cannot be read ({error}); write "
        f"redis://user:password@host:6379/0, rediss:// for TLS, or unix:///path/to/redis.sock"
    )


def where_is(client: Any) -> str:  # noqa: ANN401 - any client of redis-py
    """Its server, in words."""
    pool = getattr(client, "connection_pool", None)
    if pool is None:
        return "its cluster"
    service = getattr(pool, "service_name", None)  # Sentinel knows the address, and changes it
    return place_of(pool.connection_kwargs) if service is None else f"{service} of Sentinel"


def place_of(settings: dict[str, Any]) -> str:
    """The address in settings of a connection."""
    if "path" in settings:
        return str(settings["path"])
    return f"{settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def settings_of(client: Any) -> dict[str, Any] | None:  # noqa: ANN401 - any client of redis-py
    """How its connections are made; None for a cluster, which has many pools."""
    pool = getattr(client, "connection_pool", None)
    return None if pool is None else pool.connection_kwargs


def connections_of(client: Any) -> int:  # noqa: ANN401 - any client of redis-py
    """How many a plain client may open; 0 for any other, which is asked in its own way only.

    A subclass may change how commands are sent, and a pool that blocks counts on what it lends.
    """
    pool: Any = getattr(client, "connection_pool", None)
    if (type(client), type(pool)) not in _PLAIN or client.connection is not None:
        return 0
    settings = pool.connection_kwargs
    if getattr(pool, "cache", None) is not None or any(map(settings.get, _LOOKED_AFTER)):
        return 0
    return int(pool.max_connections)


def sends_once(client: Any) -> bool:  # noqa: ANN401 - any client of redis-py
    """Whether it surely does not try again by itself."""
    get_retry = getattr(client, "get_retry", None)
    retry = get_retry() if get_retry is not None else None
    return retry is not None and getattr(retry, "_retries", 1) == 0
