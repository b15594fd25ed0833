"""The processes between a worker and a browser, each started with the address of a Redis.

They end when somebody ends them. One that has no server of its own says when it is ready.
"""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

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


def _ready() -> None:
    print("ready", flush=True)


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {"gateway": gateway, "router": router, "bare": bare}
    parts[sys.argv[1]](*sys.argv[2:])
