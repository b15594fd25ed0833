"""An application served on a free port of this machine, from a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tests.patience import PATIENCE


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Its address, for as long as the block lasts."""
    config = uvicorn.Config(
        app, port=0, access_log=False, lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    started = threading.Event()
    startup = server.startup

    async def begin(*arguments: Any, **options: Any) -> None:
        await startup(*arguments, **options)
        started.set()

    server.startup = begin  # type: ignore[method-assign]  # to wait for it without polling
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
