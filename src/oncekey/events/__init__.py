"""Events: from a worker to the readers of its job, each once, in order, none lost.

A `Bus` or `AsyncBus` publishes and reads. A `Router` keeps the newest state and wakes readers. A
`Gateway` sends events to browsers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oncekey.events.bus import Bus
from oncekey.events.bus_async import AsyncBus
from oncekey.events.cursor import Cursor, Resync
from oncekey.events.errors import BackpressureError, InvalidEventError
from oncekey.events.event import Draft, Event, Published, shard_of
from oncekey.events.gateway import Gateway
from oncekey.events.log import Page
from oncekey.events.memory import Memory
from oncekey.events.sse import join_cursors
from oncekey.events.stages import Stages
from oncekey.extras import needing

if TYPE_CHECKING:
    from oncekey.events.router import Router

__all__ = [
    "AsyncBus",
    "BackpressureError",
    "Bus",
    "Cursor",
    "Draft",
    "Event",
    "Gateway",
    "InvalidEventError",
    "Memory",
    "Page",
    "Published",
    "Resync",
    "Router",
    "Stages",
    "join_cursors",
    "shard_of",
]


def __getattr__(name: str) -> Any:
    """Import the router when it is first used, since it needs the redis package."""
    if name != "Router":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    with needing("redis", "a router"):
        from oncekey.events.router import Router

        return Router
