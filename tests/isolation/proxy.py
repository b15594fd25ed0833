"""A way to a server, on which a test can hold back what is asked or told, and cut it."""

import asyncio
from typing import Self

from tests.patience import PATIENCE, until_async

ROOM = 256 * 1024
"""Bytes from which on what one connection carries is large. A crowd of small verbs is far below."""


class Proxy:
    """Passes bytes both ways, on as many connections as are opened.

    `sign` is what every verb has in it: `asked` counts the verbs that have come so far.
    """

    def __init__(self, port: int, sign: bytes) -> None:
        self._server_port, self._sign = port, sign
        self.asked = 0
        self.requests = _opened()
        """Closed: no verb reaches the server. Connections are opened all the same."""
        self.replies = _opened()
        """Closed: what the server tells who has sent a verb does not come back."""
        self.large = _opened()
        """Closed: a connection that carries something large stands still, and nothing else."""
        self.stuck = asyncio.Event()
        """Something large has come."""
        self.lost = b""
        """What was pending on connections when they were cut."""
        self._open: set[_Connection] = set()
        self._serving: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.cut()
        for gate in (self.requests, self.replies, self.large):
            gate.set()
        await asyncio.gather(*self._serving)

    async def have_asked(self, count: int) -> None:
        """So many verbs have come, whether they were passed on or not."""
        await until_async(lambda: self.asked >= count)
        assert self.asked == count

    async def has_more(self, than: int) -> None:
        """Something was asked since there were so many, and for a moment nothing more comes."""
        async with asyncio.timeout(PATIENCE):
            seen = than
            while self.asked == than or self.asked != seen:
                seen = self.asked
                await asyncio.sleep(0.02)

    @property
    def pending(self) -> bytes:
        """What was asked, and nobody was told about so far."""
        return b"".join(one.pending for one in self._open)

    def cut(self, *, large: bool = False) -> None:
        """All connections are gone with what was held back; or only those with something large."""
        for one in [one for one in self._open if one.large or not large]:
            self.lost += one.pending
            one.cut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.append(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self._server_port)
        one = _Connection(writer, server)
        self._open.add(one)
        both = self._forward(one, reader, server), self._back(one, answers, writer)
        await asyncio.gather(*both, return_exceptions=True)  # breaking is what it is for
        self._open.discard(one)

    async def _forward(
        self, one: "_Connection", reader: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> None:
        end = b""
        while data := await reader.read(65536):
            verbs = (end + data).count(self._sign)
            self.asked += verbs
            end = data[1 - len(self._sign) :]
            one.carried += len(data)
            one.pending += data if len(one.pending) < ROOM else b""
            if one.carried > ROOM:
                one.large = True
                self.stuck.set()
                await self.large.wait()
            if verbs:
                await self.requests.wait()
                one.told = False
            if one.gone:
                return
            server.write(data)
            await server.drain()
        one.cut()

    async def _back(
        self, one: "_Connection", server: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await server.read(65536):
            one.carried = 0
            if not one.told:
                await self.replies.wait()
            if one.gone:
                return
            one.pending = b""
            writer.write(data)
            await writer.drain()
        one.cut()


class _Connection:
    """One of them."""

    def __init__(self, *writers: asyncio.StreamWriter) -> None:
        self._writers = writers
        self.carried = 0
        self.pending = b""
        self.large = False
        self.told = True  # nobody has sent a verb and waits for what it is told
        self.gone = False

    def cut(self) -> None:
        self.gone = True
        for writer in self._writers:
            writer.transport.abort()


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event
