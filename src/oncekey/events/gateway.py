"""The gateway: an ASGI app that sends the events of a job to browsers as server-sent events.

A client is sent what it has not seen, as fast as it reads. The rest waits in a bounded queue of its
own. The response to a client that lets its queue grow past the bound just ends. It comes back with
the id of the last event that it got, and goes on from there.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl

from oncekey.errors import ConfigurationError, StoreError
from oncekey.events import sse
from oncekey.events.bus_async import AsyncBus
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import check_job, shard_of
from oncekey.events.settings import positive
from oncekey.events.subscription import Follower
from oncekey.policy import Duration, seconds

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Allow = Callable[[Scope, str], bool | Awaitable[bool]]
_OK: Final = 200
_PAUSE: Final = 1.0
_log = logging.getLogger("oncekey.events")


class Gateway:
    """An ASGI app that serves the events of a job at GET /<job>. Mount it where you like."""

    def __init__(
        self,
        bus: AsyncBus,
        *,
        allow: Allow | None,
        heartbeat: Duration = "15s",
        queue: int = 1000,
    ) -> None:
        """Check the settings.

        `allow(scope, job)` returns whether this client may watch the job; None allows everybody. It
        has no default, because an address that can be guessed is no protection. `queue` is how many
        new events may wait for a client.
        """
        if not isinstance(bus, AsyncBus):
            raise ConfigurationError(f"a gateway reads from an AsyncBus, not from {bus!r}")
        self._bus = bus
        self._allow = allow
        self._heartbeat = seconds(heartbeat, "heartbeat")
        self._queue = positive("queue", queue)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raise ConfigurationError for anything but HTTP."""
        if scope["type"] != "http":
            raise ConfigurationError(f"a gateway speaks HTTP and no {scope['type']}")
        status, job = await self._judged(scope)
        if status != _OK:
            await _plain(send, status)
            return
        await self.stream(job, scope, receive, send)

    async def stream(self, job: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events of a job to a client that may see them, until it disconnects."""
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        saw = sse.wanted(scope["headers"], query)
        await send({"type": "http.response.start", "status": _OK, "headers": sse.HEADERS})
        await _part(send, sse.greeting())
        gone = asyncio.ensure_future(_gone(receive))
        try:
            if "state" in query:
                await _part(send, await self._state(job, gone))
            async with self._bus.following(job, saw, self._queue) as follower:
                gone.add_done_callback(lambda _: follower.wake())
                await self._pour(send, gone, follower)
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

    async def _state(self, job: str, gone: asyncio.Future[None]) -> bytes:
        """Return the frame of the state, and wait while the store is down.

        An error response would make a browser give up for good.
        """
        while not gone.done():
            try:
                return sse.state_frame(await self._bus.state(job))
            except StoreError as error:
                _log.warning("a client waits for the state of a job: %s", error)
                await asyncio.wait([gone], timeout=_PAUSE)
        return b""

    async def _pour(self, send: Send, gone: asyncio.Future[None], follower: Follower) -> None:
        pulse = _Pulse(self._heartbeat, follower.wake)
        try:
            while not gone.done():
                batches = await follower.batches()
                if gone.done():
                    return
                if follower.slow:
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                    return
                await _part(send, b"".join(one.frames for one in batches) or sse.HEARTBEAT)
                pulse.restart()
        finally:
            pulse.stop()


class _Pulse:
    """Calls a function whenever it was not restarted for a period. Restarting costs nothing."""

    def __init__(self, period: float, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._period = period
        self._call = call
        self.restart()
        self._timer = self._loop.call_at(self._due, self._look)

    def restart(self) -> None:
        self._due = self._loop.time() + self._period

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._loop.time() >= self._due:
            self._call()
            self.restart()
        self._timer = self._loop.call_at(self._due, self._look)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel the task and wait until it has ended."""
    while not task.done():  # redis-py on Python 3.11 may swallow a cancellation
        task.cancel()
        await asyncio.wait([task], timeout=1.0)


async def _part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _plain(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})
