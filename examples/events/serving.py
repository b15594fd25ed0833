"""The app on a port, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib

from examples.demo.server import listening
from examples.events.app import make_app
from examples.events.ending import Ending, Server
from oncekey.events import Memory


def serve(store: str, port: int, pace: float) -> int:
    """Serve until Ctrl-C; the exit code."""
    try:
        listener = listening(port)
    except OSError as error:
        print(f"Port {port} cannot be used ({error.strerror}); --port N chooses another.")
        return 1
    where = Memory() if store == "memory://" else store
    server = Server(Ending(make_app(where, pace=pace)), lifespan="off", log_level="warning")
    with listener, contextlib.suppress(KeyboardInterrupt):
        base = f"http://localhost:{listener.getsockname()[1]}"
        print(f"Start a job and watch it on {base}. Ctrl-C ends it.", flush=True)
        asyncio.run(server.serve([listener]))
    return 0
