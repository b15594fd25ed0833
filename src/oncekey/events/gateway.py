"""The gateway: an ASGI app that sends the events of jobs to browsers as server-sent events.

A client is sent what it has not seen, as fast as it reads. The rest waits in a bounded queue of its
own. The response to a client that lets its queue grow past the bound just ends. It comes back with
the id of the last event that it got, and goes on from there. A client that takes nothing at all is
cut off.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from oncekey.errors import ConfigurationError, StoreError
from oncekey.events import sse
from oncekey.events.bundle import Bundle, JobsAndTopics, names_of
from oncekey.events.bus_async import AsyncBus
from oncekey.events.cursor import Cursor
from oncekey.events.errors import InvalidEventError
from oncekey.events.event import Event, check_job, shard_of
from oncekey.events.log import LIMIT
from oncekey.events.settings import positive
from oncekey.events.subscription import Batch, Follower
from oncekey.policy import Duration, seconds

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
Allow = Callable[[Scope, str], bool | datetime | Awaitable[bool | datetime]]
_OK: Final = 200
_NO_CONTENT: Final = 204
_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_NOT_ALLOWED: Final = 405
_PAUSE: Final = 1.0
_SHUTDOWN: Final = 1.0
"""Seconds between two looks whether the server is about to end, and for a last word then."""
_log = logging.getLogger("oncekey.events")


class Gateway:
    """An ASGI app that serves the events of a job at GET /<job>. Mount it where you like.

    GET /?job=a&job=b serves several jobs on one connection, and job=order-42/* those of a topic.
    """

    def __init__(
        self,
        bus: AsyncBus,
        *,
        allow: Allow | None,
        recheck: Duration = "5min",
        heartbeat: Duration = "15s",
        queue: int = 1000,
        send_timeout: Duration = "30s",
        origins: Iterable[str] = (),
    ) -> None:
        """Check the settings.

        `allow(scope, job)` returns whether this client may watch the job, or the time until which
        it may; None allows everybody. It has no default, because an address that can be guessed is
        no protection. It is asked again every `recheck`, and the response ends when it says no. Of
        several jobs, and of those of a topic, it is asked about each.
        `queue` is how many new events may wait for a client. A client that takes nothing for
        `send_timeout` is cut off. Pages of these `origins`, such as "https://shop.example", may
        read the answers (CORS); "*" means all of them, without cookies.
        """
        if not isinstance(bus, AsyncBus):
            raise ConfigurationError(f"a gateway reads from an AsyncBus, not from {bus!r}")
        if allow is not None and not callable(allow):
            msg = f"allow must be a function of a scope and a job, or None, not {allow!r}"
            raise ConfigurationError(msg)
        self._bus = bus
        self._allow = allow
        self._recheck = seconds(recheck, "recheck")
        self._heartbeat = seconds(heartbeat, "heartbeat")
        self._queue = positive("queue", queue)
        self._send_timeout = seconds(send_timeout, "send_timeout")
        self._origins = _checked(origins)
        self._open: set[_Client] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Refuse a WebSocket. Raise ConfigurationError for anything else."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})  # the server answers with 403
            return
        if scope["type"] != "http":
            raise ConfigurationError(f"a gateway speaks HTTP and no {scope['type']}")
        headers = sse.cors(scope["headers"], self._origins)
        if scope["method"] == "OPTIONS" and headers:
            await _plain(send, _NO_CONTENT, headers)
            return
        names = sse.names(scope)
        if names and scope["method"] == "GET":
            await self._many(names, scope, receive, send, headers)
            return
        status, job, left = await self._judged(scope)
        if status != _OK:
            methods = [(b"allow", b"GET")] if status == _NOT_ALLOWED else []
            await _plain(send, status, [*headers, *methods])
        elif sse.wants_json(scope["headers"]):
            status, page = await self._history(job, scope)
            await _plain(send, status, [*headers, *sse.JSON_HEADERS], page)
        else:
            check = None if self._allow is None else self._check(scope, job, left)
            async with self._connection(receive, send) as connection:
                await connection.start([*sse.HEADERS, *headers])
                await self._stream(job, scope, connection, check)

    async def stream(
        self, job: str, scope: Scope, receive: Receive, send: Send, *, headers: Headers = ()
    ) -> None:
        """Send the events of a job to a client that may see them, until it disconnects.

        `allow` is not called. The headers are added to the response. Answer 404 if it can be no
        job, and HEAD without events.
        """
        if scope["method"] == "HEAD":  # a route of Starlette for GET gets it too
            await _plain(send, _OK, [*sse.HEADERS, *headers])
            return
        if not _can_be(job):
            await _plain(send, _NOT_FOUND, headers)
            return
        async with self._connection(receive, send) as connection:
            await connection.start([*sse.HEADERS, *headers])
            await self._stream(job, scope, connection)

    def close(self) -> None:
        """End all responses, for a server that is about to end. Any thread may call this."""
        for connection in tuple(self._open):
            connection.loop.call_soon_threadsafe(connection.leave)

    @asynccontextmanager
    async def _connection(self, receive: Receive, send: Send) -> AsyncIterator[_Client]:
        connection = _Client(receive, send, self._send_timeout)
        self._open.add(connection)
        try:
            yield connection
        except _CutOffError:
            _log.info("a client took nothing for too long and was cut off")
        finally:
            self._open.discard(connection)
            await connection.close()

    async def _stream(
        self, job: str, scope: Scope, connection: _Client, check: _Check | None = None
    ) -> None:
        query = dict(sse.pairs(scope))
        saw = sse.wanted(scope["headers"], query)
        if "state" in query:
            state = await self._state(job, connection)
            await connection.part(b"" if state is None else sse.state_frame(*state))
        async with self._bus.following(job, saw, self._queue) as follower:
            connection.when_over(follower.wake)
            pulse = _Pulse(self._heartbeat, follower.wake)
            try:
                await self._pour(connection, follower, pulse, check)
            finally:
                pulse.stop()

    async def _many(
        self, asked: list[str], scope: Scope, receive: Receive, send: Send, headers: Headers
    ) -> None:
        """Send the events of several jobs, of each only while the client may see it."""
        query = dict(sse.pairs(scope))
        try:
            if sse.wants_json(scope["headers"]):
                raise InvalidEventError("a page of JSON is of one job")  # noqa: TRY301 - as below
            if "last_seq" in query:
                raise InvalidEventError("a number is of one job; give after")  # noqa: TRY301 - as below
            names = names_of(asked)
            places = sse.Places([*names.jobs, *names.topics], sse.last_id(scope["headers"], query))
        except InvalidEventError as error:
            body = sse.json({"error": f"these jobs cannot be followed: {error}"})
            await _plain(send, _BAD_REQUEST, [*headers, *sse.JSON_HEADERS], body)
            return
        async with self._bundle(scope, names, places) as bundle:
            if bundle.over:
                await _plain(send, _FORBIDDEN, headers)
                return
            async with self._connection(receive, send) as connection:
                await connection.start([*sse.HEADERS, *headers])
                connection.when_over(bundle.wake)
                pulse = _Pulse(self._heartbeat, bundle.wake)
                try:
                    await self._pour_many(
                        connection, bundle, places, pulse, with_state="state" in query
                    )
                finally:
                    pulse.stop()

    def _bundle(self, scope: Scope, names: JobsAndTopics, places: sse.Places) -> Bundle:
        asked: set[str] = set()

        async def allowed(job: str) -> float:
            try:
                return await self._allowed(scope, job)
            except Exception:
                if job in names.jobs and job not in asked:
                    raise  # nothing was sent yet: the client is told that the server failed
                _log.exception("allow failed for a client of job %r, which it does not get", job)
                return 0.0
            finally:
                asked.add(job)

        return Bundle(
            self._bus.following,
            self._bus.topics,
            names,
            places.start,
            allowed=None if self._allow is None else allowed,
            recheck=self._recheck,
            queue=self._queue,
        )

    async def _pour_many(
        self,
        connection: _Client,
        bundle: Bundle,
        places: sse.Places,
        pulse: _Pulse,
        *,
        with_state: bool,
    ) -> None:
        while not connection.over and not bundle.over:
            changes = await bundle.changes()
            if connection.over:
                break
            frames = b""
            for change in changes:
                if change.batch is not None:
                    frames += _frames(places, change.job, change.batch)
                elif change.refused is not None:
                    frames += sse.refused_frame(change.job, change.refused)
                elif with_state:
                    state = await self._state(change.job, connection)
                    frames += b"" if state is None else sse.job_state_frame(change.job, *state)
            if not frames and not pulse.due():
                continue
            await connection.part(frames or sse.HEARTBEAT)
            pulse.restart()
        await connection.end()

    async def _history(self, job: str, scope: Scope) -> tuple[int, bytes]:
        """Return a status and a page of the log, of some stages or since a time if asked."""
        pairs = sse.pairs(scope)
        query = dict(pairs)
        stages = {value for name, value in pairs if name == "stage"}
        saw = sse.wanted((), query)
        try:
            limit = _limit_of(query.get("limit", str(LIMIT)))
            since = _time_of(query["since"]) if "since" in query else None
            after = "foreign" if saw.foreign else saw.cursor
            page = await self._bus.read(job, after=after, last_seq=saw.above, limit=limit)
        except InvalidEventError as error:
            return 400, sse.json({"error": f"the page cannot be read: {error}"})
        except StoreError as error:
            _log.warning("a page of the events of a job cannot be read: %s", error)
            return 503, sse.json({"error": "the events cannot be read now; try again"})
        chosen = [
            one
            for one in page.events
            if (not stages or one.stage in stages)
            and (since is None or datetime.fromisoformat(one.timestamp) >= since)
        ]
        return _OK, sse.history(page, chosen)

    async def _judged(self, scope: Scope) -> tuple[int, str, float]:
        if scope["method"] != "GET":
            return _NOT_ALLOWED, "", 0.0
        root = scope.get("root_path", "")
        job = scope["path"].removeprefix(root).removeprefix("/")
        if not _can_be(job):
            return _NOT_FOUND, "", 0.0
        left = await self._allowed(scope, job)
        return (_OK if left > 0 else _FORBIDDEN), job, left

    async def _allowed(self, scope: Scope, job: str) -> float:
        """Return for how many seconds the client may watch, at most until it is asked again."""
        allowed: Any = True if self._allow is None else self._allow(scope, job)
        if inspect.isawaitable(allowed):
            allowed = await allowed
        if isinstance(allowed, datetime):
            if allowed.tzinfo is None:
                raise ConfigurationError("allow must return a time with a time zone, or a bool")
            return min(self._recheck, (allowed - datetime.now(UTC)).total_seconds())
        if not isinstance(allowed, bool):
            kind = type(allowed).__name__  # the object may hold a secret, so do not print it
            raise ConfigurationError(f"allow must return a bool or a time, not an object of {kind}")
        return self._recheck if allowed else 0.0

    def _check(self, scope: Scope, job: str, left: float) -> _Check:
        async def ask() -> float:
            try:
                return await self._allowed(scope, job)
            except Exception:  # noqa: BLE001 - whoever may not be asked for may not watch
                _log.exception("allow failed for a client of job %r, whose response ends", job)
                return 0.0

        return _Check(ask, left)

    async def _state(self, job: str, connection: _Client) -> tuple[Event | None] | None:
        """Return the state, and wait while the store is down. Return None if the client is gone.

        An error response would make a browser give up for good.
        """
        said = False
        while not connection.over:
            try:
                return (await self._bus.state(job),)
            except StoreError as error:
                if not said:  # once, however long it lasts
                    _log.warning("a client waits for the state of a job: %s", error)
                said = True
                await connection.pause(_PAUSE)
        return None

    async def _pour(
        self, connection: _Client, follower: Follower, pulse: _Pulse, check: _Check | None
    ) -> None:
        if check is not None:
            check.start(follower.wake)
        try:
            while not connection.over:
                batches = await follower.batches()
                if connection.over or follower.slow:
                    break
                if check is not None and not await check.passes():
                    break
                frames = b"".join(one.frames for one in batches)
                if not frames and not pulse.due():
                    continue
                await connection.part(frames or sse.HEARTBEAT)
                pulse.restart()
        finally:
            if check is not None:
                check.stop()
        await connection.end()


_ORIGIN: Final = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/?#@A-Z\s]+")


def _checked(origins: Iterable[str]) -> frozenset[str]:
    """Return the origins. Raise ConfigurationError for one that no browser sends."""
    if isinstance(origins, str) or not isinstance(origins, Iterable):
        raise ConfigurationError(f"origins must be a list of origins, not {origins!r}")
    found = list(origins)
    for origin in found:
        if not isinstance(origin, str) or not _ORIGIN.fullmatch(origin):
            msg = (
                f"origins are as a browser sends them, such as 'https://shop.example', in lower "
                f"case and without a path or a slash at the end; {origin!r} is none"
            )
            raise ConfigurationError(msg)
    return frozenset(found)


def _can_be(job: str) -> bool:
    try:
        shard_of(check_job(job), 1)
    except InvalidEventError:
        return False
    return True


def _limit_of(given: str) -> int:
    """Return how many events to look at. Raise InvalidEventError if it is no such number."""
    if not re.fullmatch("[0-9]{1,9}", given) or int(given) < 1:
        raise InvalidEventError(f"limit is a whole number above zero, not {given!r}")
    return min(LIMIT, int(given))


def _time_of(given: str) -> datetime:
    """Return the time. Raise InvalidEventError if it is none, or has no time zone."""
    with suppress(ValueError):
        time = datetime.fromisoformat(given)
        if time.tzinfo is not None:
            return time
    msg = f"since is a time with its zone, such as 2026-01-01T00:00:00Z, not {given!r}"
    if " " in given:
        msg += "; in an address + is written as %2B"
    raise InvalidEventError(msg)


_PIECE: Final = 1 << 16
"""The bytes that are sent at once."""


class _CutOffError(Exception):
    """The client did not take what was sent."""


class _Client:
    """One response, each part of which the client must take in time."""

    def __init__(self, receive: Receive, send: Send, limit: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.over = False
        """Whether the client is gone, or the response must end."""
        self._send = send
        self._limit = limit
        self._calls: list[Callable[[], None]] = []
        # ASGI cannot cut off a client. Of a server such as uvicorn the methods have an object that
        # can, and that says when the server is about to end.
        self._request: Any = getattr(receive, "__self__", None)
        self._transport: Any = getattr(self._request, "transport", None)
        self._kept = getattr(self._request, "keep_alive", False) is True
        self._gone = False
        self._blocked: asyncio.Timeout | None = None
        self._task = asyncio.ensure_future(self._watch(receive))
        self._timer = self.loop.call_later(_SHUTDOWN, self._look)

    def when_over(self, call: Callable[[], None]) -> None:
        """Call this when the client is gone, or the response must end."""
        self._calls.append(call)
        if self.over:
            call()

    def leave(self) -> None:
        """End the response. A client that takes nothing has a last moment to do it."""
        if self._blocked is not None and self._blocked.when() is not None:
            self._blocked.reschedule(min(self._blocked.when() or 0, self.loop.time() + _SHUTDOWN))
        self._limit = min(self._limit, _SHUTDOWN)
        self._finish()

    async def start(self, headers: Headers) -> None:
        """Begin the response."""
        message = {"type": "http.response.start", "status": _OK, "headers": list(headers)}
        await self._sent(message)
        await self.part(sse.greeting())

    async def part(self, body: bytes) -> None:
        """Send a part. Raise _CutOffError if the client does not take it in time.

        A server copies what the client has not taken yet. So a large part is sent in pieces, each
        when the one before it is on its way.
        """
        for at in range(0, len(body), _PIECE):
            piece = body[at : at + _PIECE]  # the same object, if it is the only one
            await self._sent({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """End the response in good order, unless the client is gone."""
        if not self._gone:
            await self._sent({"type": "http.response.body", "body": b"", "more_body": False})

    async def pause(self, length: float) -> None:
        """Wait, but not for a client that is gone."""
        await asyncio.wait([self._task], timeout=length)

    async def close(self) -> None:
        """Stop watching. What the client has still not taken after the limit is dropped."""
        self._timer.cancel()
        if self._transport is not None:
            self.loop.call_later(self._limit, _drop, self._transport)
        await _end(self._task)

    async def _sent(self, message: MutableMapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._limit) as self._blocked:
                await self._send(message)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()
            raise _CutOffError from None
        finally:
            self._blocked = None

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._finish()

    def _finish(self) -> None:
        self.over = True
        for call in self._calls:
            call()

    def _look(self) -> None:
        if self._kept and self._request.keep_alive is False:  # uvicorn is about to end
            self.leave()
            return
        self._timer = self.loop.call_later(_SHUTDOWN, self._look)


def _drop(transport: Any) -> None:
    """Close a connection at once that is being closed, but still waits for its client."""
    if transport.is_closing():
        transport.abort()


class _Check:
    """Asks again and again whether a client may still watch."""

    def __init__(self, ask: Callable[[], Awaitable[float]], left: float) -> None:
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + left
        self._timer: asyncio.TimerHandle | None = None

    def start(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever it is time to ask again."""
        self._wake = wake
        self._timer = self._loop.call_at(self._until, wake)

    async def passes(self) -> bool:
        """Return whether the client may watch. Ask if it is time to."""
        if self._loop.time() < self._until:
            return True
        left = await self._ask()
        self._until = self._loop.time() + left
        if left > 0:
            self._timer = self._loop.call_later(left, self._wake)
        return left > 0

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _Pulse:
    """Calls a function whenever it was not restarted for a period. Restarting costs nothing."""

    def __init__(self, period: float, call: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._period = period
        self._call = call
        self.restart()
        self._timer = self._loop.call_at(self._at, self._look)

    def restart(self) -> None:
        self._at = self._loop.time() + self._period
        self._due = False

    def due(self) -> bool:
        """Return whether the period is over."""
        return self._due

    def stop(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        if self._loop.time() >= self._at:
            self.restart()
            self._due = True
            self._call()
        self._timer = self._loop.call_at(self._at, self._look)


def _frames(places: sse.Places, job: str, batch: Batch) -> bytes:
    frames = b"" if batch.resync is None else places.resync(job, batch.resync, batch.before)
    return frames + b"".join(
        places.event(job, one.frame, Cursor(batch.epoch, one.offset, one.mark))
        for one in batch.framed
    )


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel the task and wait until it has ended."""
    while not task.done():  # redis-py on Python 3.11 may swallow a cancellation
        task.cancel()
        await asyncio.wait([task], timeout=1.0)


async def _plain(send: Send, status: int, headers: Headers, body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
