"""What an ASGI server and an application say to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from typing import Any, Final

from oncekey.http.body import Body
from oncekey.http.reply import Reply
from oncekey.http.request import Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


_LOWER: Final = frozenset(
    {
        *(b"cache-control", b"content-length", b"content-type", b"date", b"etag", b"location"),
        *(b"server", b"set-cookie", b"vary", b"x-request-id"),
    }
)


async def send_reply(send: Send, reply: Reply) -> None:
    """The client has the reply."""
    start = {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
    await send(start)
    await send({"type": "http.response.body", "body": reply.body})


def of_body(body: Body) -> Iterator[Message]:
    """A body, piece by piece."""
    left = body.size
    for chunk in body.chunks():
        left -= len(chunk)
        yield {"type": "http.request", "body": chunk, "more_body": left > 0}


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """A copy of the headers, as the rules see them: bytes, and names in lower case."""
    copy = list(headers)
    for name, value in copy:
        if type(name) is not bytes or name not in _LOWER or type(value) is not bytes:
            return [(bytes(name).lower(), bytes(value)) for name, value in copy]
    return copy
