"""Routers and gateways for the time of a run, and browsers that watch a job."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.http_server import Answering
from tests.patience import PATIENCE

_ROOT: Final = Path(__file__).parents[1]
_PLACE: Final = re.compile(rb"^id: \w+\.(\d+)\.", re.MULTILINE)


@contextmanager
def started(*words: str, passed: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A part of `bench.events_app`; afterwards it is gone."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.events_app", *words],
        cwd=_ROOT,
        env=os.environ,
        pass_fds=[] if passed is None else [passed],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def routing(part: str, url: str) -> Iterator[None]:
    """A router that is ready."""
    with started(part, url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"the {part} of the bench did not start"
        yield


@contextmanager
def gateway(url: str) -> Iterator[Answering]:
    """A gateway, which listens from the start and answers when it is ready."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        number, port = listening.fileno(), listening.getsockname()[1]
        with started("gateway", url, str(number), passed=number) as process:
            yield Answering(port, process.pid)


class Browser(asyncio.Protocol):
    """Counts the events of a job, which must come each once and in order."""

    def __init__(self, job: str) -> None:
        self.seen = 0
        self.wrong = 0
        """How many came that were not the next one."""
        self.open = asyncio.Event()
        self.came = asyncio.Event()
        self._job = job
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    async def visit(self, port: int) -> Browser:
        """Connected, and told so by the gateway."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", port)
        self._transport.write(f"GET /{self._job} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            await self.open.wait()
        return self

    async def until(self, events: int) -> None:
        """So many have come."""
        while self.seen < events:
            self.came.clear()
            await self.came.wait()

    def leave(self) -> None:
        """The connection is cut."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Whole lines are read; each id is the place of an event."""
        self.open.set()
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        for place in _PLACE.findall(text, 0, end):
            self.wrong += int(place) != self.seen + 1
            self.seen += 1
        self.came.set()
