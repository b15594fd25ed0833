"""The gateway: the events of a job for a browser, as server-sent events over ASGI.

A client is sent what it has not seen, as fast as it takes it. Nothing is kept for it but one page
of the log: one that is too slow falls behind in the log, and is told if that grew past its place.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

from oncekey.duration import Duration, seconds
from oncekey.errors import ConfigurationError
from oncekey.events import sse
from oncekey.events.bus import AsyncBus
from oncekey.events.cursor import Resync
from oncekey.events.draft import check_job
from oncekey.events.event import Event, shard_of
from oncekey.events.trouble import InvalidEventError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Allow = Callable[[Scope, str], bool | Awaitable[bool]]


class Gateway:
    """An ASGI app: GET /<job> is the stream of the job's events. Mount it where you like."""

    def __init__(self, bus: AsyncBus, *, allow: Allow | None, heartbeat: Duration = "15s") -> None:
        """`allow(scope, job)` says whether this client may watch the job; None: everybody may.

        It has no default, because an address that can be guessed is no protection.
        """
        if not isinstance(bus, AsyncBus):
            raise ConfigurationError(f"a gateway reads from an AsyncBus, not from {bus!r}")
        self._bus = bus
        self._allow = allow
        self._heartbeat = seconds(heartbeat, "heartbeat")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Other kinds of connections are refused."""
        if scope["type"] != "http":
            raise ConfigurationError(f"a gateway speaks HTTP and no {scope['type']}")
        status, job = await self._judged(scope)
        if status != _OK:
            await _plain(send, status)
            return
        await self.stream(job, scope, receive, send)

    async def stream(self, job: str, scope: Scope, receive: Receive, send: Send) -> None:
        """The events of a job, for a client that was allowed to see them, until it has gone."""
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        saw = sse.wanted(scope["headers"], query)
        first = sse.state_frame(await self._bus.state(job)) if "state" in query else b""
        await send({"type": "http.response.start", "status": _OK, "headers": sse.HEADERS})
        await _part(send, first + sse.HEARTBEAT)  # it knows at once that it is connected
        gone = asyncio.ensure_future(_gone(receive))
        try:
            async with aclosing(self._bus.follow(job, saw)) as events:
                await self._pour(send, gone, events)
        finally:
            await _end(gone)

    async def _judged(self, scope: Scope) -> tuple[int, str]:
        if scope["method"] != "GET":
            return 405, ""
        root = scope.get("root_path", "")
        job = scope["path"].removeprefix(root).removeprefix("/")
        try:
            shard_of(check_job(job), 1)
        except InvalidEventError:
            return 404, ""
        allowed: Any = True if self._allow is None else self._allow(scope, job)
        if inspect.isawaitable(allowed):
            allowed = await allowed
        return (_OK if allowed is True else 403), job

    async def _pour(
        self,
        send: Send,
        gone: asyncio.Future[Any],
        events: AsyncGenerator[Event | Resync, None],
    ) -> None:
        coming: asyncio.Future[Any] = asyncio.ensure_future(anext(events))
        try:
            while not gone.done():
                done, _ = await asyncio.wait(
                    [coming, gone], timeout=self._heartbeat, return_when=asyncio.FIRST_COMPLETED
                )
                if coming in done:
                    one, coming = coming.result(), asyncio.ensure_future(anext(events))
                    await _part(send, sse.frame(one))
                elif not done:
                    await _part(send, sse.HEARTBEAT)
        finally:
            await _end(coming)


_OK = 200


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[Any]) -> None:
    """It runs no more. A generator cannot be closed while somebody waits for it."""
    while not task.done():  # redis-py on Python 3.11 may swallow a cancellation
        task.cancel()
        await asyncio.wait([task], timeout=1.0)


async def _part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _plain(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})
