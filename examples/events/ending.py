"""A server that lets go of those who watch when it ends; else it would wait for them for ever."""

from __future__ import annotations

import asyncio
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Ending:
    """An app whose clients all seem to be gone once it was told to stop."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._open: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; a response that was not over when all ended is closed in good order."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        more = False

        async def sent(message: Message) -> None:
            nonlocal more
            more = message["type"] == "http.response.start" or message.get("more_body", False)
            await send(message)

        stopped = asyncio.Event()
        self._open[stopped] = asyncio.get_running_loop()
        try:
            await self._app(scope, _until(stopped, receive), sent)
        finally:
            del self._open[stopped]
        if more and stopped.is_set():
            await send({"type": "http.response.body", "body": b""})

    def stop(self) -> None:
        """From any thread, or from a handler of signals."""
        for stopped, loop in tuple(self._open.items()):
            loop.call_soon_threadsafe(stopped.set)


def _until(stopped: asyncio.Event, receive: Receive) -> Receive:
    async def received() -> Message:
        coming = asyncio.ensure_future(receive())
        ending = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait([coming, ending], return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else {"type": "http.disconnect"}
        finally:
            coming.cancel()
            ending.cancel()

    return received


class Server(uvicorn.Server):
    """A server for such an app."""

    def __init__(self, app: Ending, **options: Any) -> None:
        super().__init__(uvicorn.Config(app, ws="none", **options))
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As told by a signal: no more requests, and an end of those that would not end."""
        super().handle_exit(sig, frame)
        self._app.stop()
