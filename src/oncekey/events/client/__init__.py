"""The client for browsers: the path of its file, and an ASGI app that serves it.

It is one file of JavaScript, `oncekey-events.js`, without dependencies and without a build.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from oncekey.errors import ConfigurationError

NAME: Final = "oncekey-events.js"
_READING: Final = ("GET", "HEAD")


def client_path() -> Path:
    """Return the path of the file, to copy it or to let a web server serve it."""
    return Path(__file__).with_name(NAME)


class ClientApp:
    """An ASGI app that answers any path with the file. Use it as a route or as a mount."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Send the file. Browsers cache it, and ask each time whether it has changed."""
        del receive  # a request for a file has no body
        if scope["type"] != "http":
            msg = f"the file of the client is served over HTTP and no {scope['type']}"
            raise ConfigurationError(msg)
        status, headers, body = _answer(scope["method"], scope["headers"])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


client_app: Final = ClientApp()

_Headers = list[tuple[bytes, bytes]]


def _answer(method: str, asked: _Headers) -> tuple[int, _Headers, bytes]:
    if method not in _READING:
        return 405, [(b"allow", b"GET, HEAD")], b""
    body = client_path().read_bytes()
    tag = f'"{sha256(body).hexdigest()[:32]}"'.encode()
    known: _Headers = [(b"etag", tag), (b"cache-control", b"no-cache")]
    if any(name.lower() == b"if-none-match" and tag in value for name, value in asked):
        return 304, known, b""
    headers = [
        *known,
        (b"content-type", b"text/javascript; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
    ]
    return 200, headers, b"" if method == "HEAD" else body
