"""A gateway on a real server, and clients that behave as a browser does and hang up anywhere."""

import asyncio
import json
import socket
from collections import defaultdict
from contextlib import asynccontextmanager

import uvicorn

from tests.patience import PATIENCE


@asynccontextmanager
async def serving(app, graceful=int(PATIENCE)):
    """The port of the app, on a server in this loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=graceful,
        access_log=False,
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task
        listener.close()


CHUNK = 65536


class Browser:
    """Keeps the id of the last whole event and sends it when it comes back."""

    def __init__(self, port, job, query=""):
        self.port, self.job, self.query = port, job, query
        self.last = ""
        self.list = []
        self.jobs = defaultdict(list)
        """The offsets of the events that came, by their job."""
        self.refused = {}
        self.ids = []
        self.resyncs = []
        self.states = []
        self.beats = 0
        self.retries = []
        self.head = b""
        self.told = asyncio.Event()
        self.buffer = None
        """How much the system takes for it while it does not read."""

    async def visit(self, *, until=None, cut=None, pause=None):
        """Connected until so many events are there, or so many bytes of the body have come.

        `until` may also be a function that says whether it has what it wants.
        With `pause`, two events: the first is set when it is connected, then it takes nothing
        until the second one is.
        """
        reader, writer = await self._connected()
        header = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
        writer.write(f"GET /{self.job}{self.query} HTTP/1.0\r\n{header}\r\n".encode("latin-1"))
        try:
            self.head = await reader.readuntil(b"\r\n\r\n")
            if pause is not None:
                writer.transport.pause_reading()
                pause[0].set()
                await pause[1].wait()
                writer.transport.resume_reading()
            rest, left = b"", cut
            while not self._has(until):
                part = await reader.read(CHUNK if left is None else min(CHUNK, left))
                if not part:
                    return
                rest = self._take(rest + part)
                if left is not None:
                    left -= len(part)
                    if left <= 0:
                        return
        finally:
            writer.close()

    def _has(self, until):
        if callable(until):
            return until()
        return until is not None and len(self.list) >= until

    async def _connected(self):
        plain = socket.socket()
        if self.buffer is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.buffer)
        plain.setblocking(False)
        await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self.port))
        return await asyncio.open_connection(sock=plain)

    def _take(self, text):
        *frames, rest = text.split(b"\n\n")
        for frame in frames:
            self._frame(dict(line.partition(b": ")[::2] for line in frame.split(b"\n")))
        return rest

    def _frame(self, fields):
        if b"retry" in fields:
            self.retries.append(int(fields[b"retry"]))
        if b":" in fields:
            self.beats += 1
        if b"id" in fields:
            self.last = fields[b"id"].decode()
            self.ids.append(self.last)
        if b"data" not in fields:
            return
        data, kind = json.loads(fields[b"data"]), fields.get(b"event", b"message")
        if kind == b"resync":
            self.resyncs.append(data["reason"])
            self.list = []
            self.jobs.pop(data.get("job_id"), None)
            self.told.set()
        elif kind == b"refused":
            self.refused[data["job_id"]] = data["reason"]
            self.told.set()
        elif kind == b"state":
            self.states.append(data)
        else:
            self.list.append(data["seq"])
            self.jobs[data["job_id"]].append(data["offset"])
