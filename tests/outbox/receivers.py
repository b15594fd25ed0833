"""Receivers of webhooks, and names that lead to them."""

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import NamedTuple


class Post(NamedTuple):
    """A request, as it was received."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """A server that remembers what it was sent, and answers what it is told to."""

    def __init__(self):
        self.posts = []
        self.answer = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n"
        self.endless = False
        self.left = asyncio.Event()
        self.port = 0

    def answers(self, status, *headers, body=b""):
        lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", *headers, "", ""]
        self.answer = "\r\n".join(lines).encode() + body

    async def __call__(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {
                    name.lower(): value for name, value in (one.split(": ", 1) for one in lines)
                }
                body = await reader.readexactly(int(headers["content-length"]))
                self.posts.append(Post(first.split()[1], headers, body))
                writer.write(self.answer)
                while self.endless:
                    writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.left.set()
            writer.close()


@asynccontextmanager
async def receiving(address="127.0.0.1", port=0, ssl=None):
    """A receiver that is there during the block."""
    receiver = Receiver()
    server = await asyncio.start_server(receiver, address, port, ssl=ssl)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


class Names:
    """What names resolve to: the next address with each question, the last one from then on."""

    def __init__(self, monkeypatch):
        self.known = {}
        self.asked = []
        self._resolve = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self)

    def __call__(self, host, port, *args, **options):
        name = host.decode() if isinstance(host, bytes) else host
        addresses = self.known.get(name)
        if addresses is None:
            return self._resolve(host, port, *args, **options)
        self.asked.append(name)
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        several = address if isinstance(address, list) else [address]
        return [one for each in several for one in self._resolve(each, port, *args, **options)]
