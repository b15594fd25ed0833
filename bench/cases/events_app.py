"""The processes between a worker and a browser, each started with the address of a Redis.

They end when somebody ends them. One that has no server of its own says when it is ready.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import redis
import uvicorn

from oncekey.events import AsyncBus, Gateway, Router, Stages

DOMAIN: Final = "bench"
STAGES: Final = Stages({"work": (0, 10**9)})
PLAIN: Final = "plain"
"""The stream and the channel of the bare path."""
_GROUP: Final = "router"


def gateway(url: str, listening: str) -> None:
    app = Gateway(AsyncBus(url, domain=DOMAIN, stages=STAGES), allow=None)
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=int(listening))])


def router(url: str) -> None:
    made = Router(url, domain=DOMAIN)
    signal.signal(signal.SIGTERM, lambda *_: made.stop())
    _ready()
    made.run()
    made.close()


def bare(url: str) -> None:
    """What a router does at the least, with redis-py: read, publish, acknowledge."""
    with redis.Redis.from_url(url) as client:
        client.xgroup_create(PLAIN, _GROUP, "0", mkstream=True)
        _ready()
        while True:
            found: Any = client.xreadgroup(_GROUP, "a", {PLAIN: ">"}, count=100, block=500)
            for _, entries in found:
                for name, fields in entries:
                    client.publish(PLAIN, fields[b"data"])
                    client.xack(PLAIN, _GROUP, name)


class _Returning(asyncio.Protocol):
    """A client that comes back with an id, and takes everything up to the last event."""

    def __init__(self, request: bytes, last: bytes) -> None:
        self.complete = asyncio.Event()
        self._request = request
        self._last = last
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        text = self._tail + data
        if self._last in text:
            self.complete.set()
        self._tail = text[-len(self._last) :]


def storm(port: str, job: str, *ids: str) -> None:
    """Clients that come back at once, each to its place, until they have the last one."""
    _ready()
    asyncio.run(_come_back(int(port), job, ids))


async def _come_back(port: int, job: str, ids: tuple[str, ...]) -> None:
    loop = asyncio.get_running_loop()
    request = f"GET /{job} HTTP/1.1\r\nHost: here\r\nLast-Event-ID: %s\r\n\r\n"
    last = f"id: {ids[-1]}".encode()
    connecting = [
        loop.create_connection(
            partial(_Returning, (request % name).encode(), last), "127.0.0.1", port
        )
        for name in ids[:-1]
    ]
    opened = await asyncio.gather(*connecting)
    for transport, client in opened:
        await client.complete.wait()
        transport.abort()


def _ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {
        "gateway": gateway,
        "router": router,
        "bare": bare,
        "storm": storm,
    }
    parts[sys.argv[1]](*sys.argv[2:])
