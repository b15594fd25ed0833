"""Which place a bus means: a URL, a client of redis-py, or a memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncekey.errors import ConfigurationError
from oncekey.events.memory import AsyncMemoryPlace, Memory, MemoryPlace
from oncekey.events.observing import Observers
from oncekey.events.settings import Settings
from oncekey.extras import needing

if TYPE_CHECKING:
    from oncekey.events.place import AsyncPlace, Place

Where = Any
"""A URL (redis://, rediss://, unix://, memory://), a client of redis-py, or a `Memory`."""


def open_place(where: Where, settings: Settings, observers: Observers) -> Place:
    """The place for blocking code; nothing is sent yet."""
    memory = _memory(where)
    if memory is not None:
        return MemoryPlace(memory, settings)
    with needing("redis", "a bus in Redis"):
        from oncekey.events.redis_place import RedisPlace  # noqa: PLC0415 - an extra
        from oncekey.stores.redis.client import Clients  # noqa: PLC0415 - an extra

    make = Clients.of_url if isinstance(where, str) else Clients.of_client
    return RedisPlace(make(where), settings, observers)


def open_place_async(where: Where, settings: Settings, observers: Observers) -> AsyncPlace:
    """The place for coroutines; nothing is sent yet."""
    memory = _memory(where)
    if memory is not None:
        return AsyncMemoryPlace(memory, settings)
    with needing("redis", "a bus in Redis"):
        from oncekey.events.nudges import NudgedRedisPlace  # noqa: PLC0415 - an extra
        from oncekey.stores.redis.client import AsyncClients  # noqa: PLC0415 - an extra

    make = AsyncClients.of_url if isinstance(where, str) else AsyncClients.of_client
    return NudgedRedisPlace(make(where), settings, observers)


def _memory(where: Where) -> Memory | None:
    if isinstance(where, Memory):
        return where
    if not isinstance(where, str):
        return None
    scheme = where.partition("://")[0]
    if scheme == "memory":
        if where != "memory://":
            msg = "a memory has no name; make one Memory() and give it to those who share it"
            raise ConfigurationError(msg)
        return Memory()
    if scheme not in ("redis", "rediss", "unix"):
        found = f"{scheme}://" if "://" in where else "so"  # the rest may hold a password
        msg = f"the URL of a bus starts with redis://, rediss://, unix:// or memory://, not {found}"
        raise ConfigurationError(msg)
    return None
