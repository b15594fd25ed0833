"""The id of the request, for whoever is called on its behalf."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

request_id: ContextVar[str] = ContextVar("request_id", default="-")


class RequestIds:
    """Takes the client's `X-Request-Id`, or makes one, and sends it back with the response."""

    def __init__(self, app: ASGIApp) -> None:
        """Around the whole service."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request has an id while it is answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        usable = sent.isascii() and sent.isprintable() and 0 < len(sent) <= 100
        name = sent if usable else f"req_{uuid4().hex[:16]}"

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {
                    **message,
                    "headers": [*message["headers"], (b"x-request-id", name.encode())],
                }
            await send(message)

        reset = request_id.set(name)
        try:
            await self._app(scope, receive, tagged)
        finally:
            request_id.reset(reset)
