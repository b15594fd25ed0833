"""A redis-server for the time of a run: on a port of the loopback, keeping nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.servers.redis import RedisServer


class Server(NamedTuple):
    """Where it listens, which process it is, and which version."""

    port: int
    pid: int
    version: str


@contextmanager
def redis_server() -> Iterator[Server]:
    """Run a server inside the block and leave nothing behind.

    Raise MissingProgramError when there is no redis-server.
    """
    with tempfile.TemporaryDirectory(prefix="oncekey-redis-") as folder:
        server = RedisServer(Path(folder))
        try:
            server.start()
            yield Server(server.port, server.process.pid, ".".join(map(str, server.version)))
        finally:
            server.stop()
