"""Both services in one process: `python -m examples.demo.server --store URL --folder FOLDER`.

It prints its port as soon as it can be asked, and ends when its standard input does: with whoever
started it, even if that one was killed.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.payments import app as payments
from examples.payments.gateway import Gateway
from examples.webhooks import app as webhooks
from oncekey import Once

BOOK, EVENTS = "gateway.db", "webhooks.txt"


@dataclass(frozen=True)
class Options:
    """What a server is told. Times are short, so that nobody has to wait a day."""

    store: str
    folder: Path
    ttl: str = "24h"
    lease: str = "30s"
    time_out: float = payments.TIME_OUT


def services(options: Options) -> ASGIApp:
    """Both services on one store."""
    once = Once(options.store)
    gateway = Gateway(options.folder / BOOK)
    receiver = webhooks.Receiver(options.folder / EVENTS)
    times: Any = {"ttl": options.ttl, "lease": options.lease}
    paying = payments.make_app(once, gateway, time_out=options.time_out, **times)
    receiving = webhooks.make_app(once, receiver, **times)

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        app = receiving if scope.get("path") == "/webhook" else paying
        await app(scope, receive, send)

    return both


def listening(port: int = 0) -> socket.socket:
    """A socket that takes connections on the loopback; port 0 stands for any that is free."""
    # Said to be TCP, so that asyncio sends small parts at once instead of collecting them.
    listener = socket.socket(proto=socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    listener.listen(512)
    return listener


def server_of(app: ASGIApp, log_level: str = "warning") -> uvicorn.Server:
    """A server that has not started."""
    config = uvicorn.Config(app, lifespan="on", log_level=log_level, ws="none")
    return uvicorn.Server(config)


def options_of(arguments: list[str]) -> Options:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo.server", description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("--ttl", default=Options.ttl)
    parser.add_argument("--lease", default=Options.lease)
    parser.add_argument("--time-out", default=Options.time_out, type=float)
    return Options(**vars(parser.parse_args(arguments)))


def run(app: ASGIApp) -> None:
    """Serve until standard input ends."""
    logging.basicConfig(level=logging.ERROR)  # whoever started it tells what happens
    server = server_of(app)

    def stop_with_input() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=stop_with_input, daemon=True).start()
    with listening() as listener:
        print(listener.getsockname()[1], flush=True)
        asyncio.run(server.serve([listener]))


if __name__ == "__main__":
    run(services(options_of(sys.argv[1:])))
