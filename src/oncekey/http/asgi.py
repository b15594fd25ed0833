"""Middleware for ASGI: Starlette, FastAPI, Litestar, Quart and any other.

A request that is not covered is passed on unchanged. A covered request is read completely, and its
response is held back until the end of the request is recorded, so that no client is told "done"
before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, MutableMapping
from functools import partial
from typing import Any, Final, Unpack

from oncekey.attempt import AsyncAttempt, attempt_of
from oncekey.compat import refuse_other_loops, running_loop
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError, TooLargeError
from oncekey.http.exchange_async import AsyncExchange
from oncekey.http.request import Headers, Request, called, nobody, placed
from oncekey.http.response import Reply, Unkept, says_when
from oncekey.http.routers import of_asgi
from oncekey.http.rules import Asked, Rules, Sent, Settings
from oncekey.once import Once

_log = logging.getLogger("oncekey")

__all__ = ["AnsweredError", "IdempotencyMiddleware", "claim"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PLACE: Final = "oncekey.exchange"
"""The key of the exchange in the ASGI scope."""

_GONE: Final = 400
_REFUSED: Final = 400
_HELD_FOR: Final = 1.0
_IDENTITY: Final = (b"accept-encoding", b"identity")
# With these extensions parts of the response would bypass the middleware.
_PAST_US: Final = frozenset(
    f"http.response.{name}" for name in ("pathsend", "zerocopysend", "trailers", "push")
)

_LOWER: Final = frozenset(
    {
        *(b"cache-control", b"content-length", b"content-type", b"date", b"etag", b"location"),
        *(b"server", b"set-cookie", b"vary", b"x-request-id"),
    }
)


class IdempotencyMiddleware:
    """ASGI middleware that runs a request once, even if it arrives twice.

    With `claim="handler"` nothing is read or claimed before the handler calls
    `await claim(request, ...)`, after it has authenticated the user. The middleware then only holds
    the response back.
    """

    def __init__(self, app: App, once: Once | None = None, **settings: Unpack[Settings]) -> None:
        """Check every setting. Nothing is opened before the first request."""
        self.app: Final = app
        self.rules: Final = Rules(once, **settings)
        self.rules.routes.answered_by(partial(of_asgi, app))
        self._root = str(getattr(app, "root_path", ""))  # FastAPI's, which sets it further inside
        self._running: dict[asyncio.Task[None], asyncio.Future[None]] = {}
        self._when_over: Final = self._is_over  # one bound method for all requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for the request, or send the answer that is kept."""
        rules = self.rules
        sent = rules.read(scope["headers"]) if scope["type"] == "http" else None
        if sent is None:
            if scope["type"] == "lifespan":
                send = self._checked(send)
            await self._pass(scope, receive, send)
            return
        if self._root:
            scope = {**scope, "root_path": self._root}
        if rules.status is not None and rules.status.meant(scope["method"], *_placed(scope)):
            await self._tell(scope, send)
            return
        try:
            loop = running_loop()
        except RuntimeError:
            refuse_other_loops()
            raise
        exchange = ASGIExchange(rules, receive, send)
        runs = await exchange.enter(scope, sent)
        if runs is None:
            await self._pass(scope, receive, send)
        elif runs:
            inner = _inner(scope, exchange, chooses=sent.chooses)
            call = exchange.call(self.app, inner, self._when_over)
            task = loop.create_task(call)
            over = self._running[task] = loop.create_future()
            task.add_done_callback(self._when_over)
            try:  # the task runs to its end, also when the client is gone
                await over
            except asyncio.CancelledError:
                exchange.detach()
                task.add_done_callback(_tell_of_failure)
                raise
            task.result()

    def _pass(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass the request on to the application, unchanged."""
        if self.rules.by_handler:
            scope.setdefault(PLACE, None)  # tells `claim` that the middleware is installed
        return self.app(scope, receive, send)

    def _checked(self, send: Send) -> Send:
        """Return a `send` for the lifespan that compares `routes=` with the application's routes.

        That is done when the application has started: until then it may add routes.
        """

        async def checked(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                refuse_other_loops()
                self.rules.routes.compare()
            await send(message)

        return checked

    async def _tell(self, scope: Scope, send: Send) -> None:
        """Answer a request for a status."""
        rules = self.rules
        try:
            pointing = rules.looked_for(_request_of(scope, *_placed(scope)))
            record = None
            if pointing is not None:
                record = await rules.once.get_async(pointing.key, scope=pointing.scope)
            reply = rules.told(pointing, record)
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        await _send_reply(send, reply)

    def _is_over(self, task: asyncio.Task[None]) -> None:
        over = self._running.pop(task)
        if not over.done():
            over.set_result(None)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    """Log the failure: no other code sees it once the client is gone."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("a request failed after its client had gone", exc_info=task.exception())


async def claim(request: Any, *, scope: str | None = UNSET) -> AsyncAttempt | None:
    """Claim the request in a handler that has authenticated it. Return the attempt.

    Return None if the request has no key. For a duplicate raise AnsweredError: the middleware
    sends the first answer again. `scope` is the owner of the request, such as the id of the user.
    With None the request runs unprotected. With EVERYBODY all clients may see each other's answers.
    """
    asgi: Scope = request if isinstance(request, dict) else getattr(request, "scope", {})
    if "type" not in asgi:
        msg = f"claim takes the request, or its ASGI scope, not {type(request).__name__}"
        raise ConfigurationError(msg)
    if PLACE not in asgi:
        msg = "nothing can be claimed here: install IdempotencyMiddleware with claim='handler'"
        raise ConfigurationError(msg)
    exchange: ASGIExchange | None = asgi[PLACE]  # None: not covered, or without a key
    return None if exchange is None else await exchange.claim_for(scope)


class ASGIExchange(AsyncExchange):
    """One covered request: read and claim it, run the application, hold the response back."""

    _unclaimed: tuple[Asked, Body] | None = None  # the request that a handler can still claim
    _body: Body | None = None  # the body, if it is on disk or needed for a claim
    _message: Message | None = None  # the body, if it came in one piece
    _messages: Iterator[Message] | None = None  # the body, if it came in several pieces
    _whole = False  # whether all of the body was read
    _given = 0  # the bytes of it that the application has read before the claim
    _too_large: TooLargeError | None = None
    _sending = False
    _listening: asyncio.Event | None = None  # set when the response goes out
    _timer: asyncio.Task[None] | None = None
    _changing: asyncio.Lock | None = None  # needed only if there is a timer
    _start: Message
    _headers: Headers  # the headers of the start, names in lower case
    _ordinary = False  # whether they are kept and sent as they are
    _parts: list[bytes] | None = None
    _held = 0
    _finished = False
    _deaf = False

    def __init__(self, rules: Rules, receive: Receive, send: Send) -> None:
        """Start without reading the request."""
        self.rules = rules
        self._from_client = receive
        self._to_client = send

    def detach(self) -> None:
        """Send nothing more: the client is gone."""
        self._deaf = True

    # The claim

    async def enter(  # noqa: C901 - each request takes this way, and a hop costs more than a branch
        self, scope: Scope, sent: Sent
    ) -> bool | None:
        """Read and claim the request. Return whether the application is to run.

        Return None if the request is not covered. After False the client has its answer, or is
        gone.
        """
        rules = self.rules
        try:
            path, root = _placed(scope) if scope.get("root_path") else (scope["path"], "")
            asked = rules.find(
                scope["method"], path, root, sent, partial(_request_of, scope, path, root)
            )
        except OncekeyError as error:
            await _send_reply(self._to_client, rules.answers.refusal(error))
            return False
        if asked is None:
            return None
        self.echo = asked.echo
        body, runs, reply = asked.body, False, None
        if rules.by_handler and rules.profile.signature is None:
            # Nothing is read before the application has authenticated the client.
            self._unclaimed, self._body = (asked, body), body
            return True
        try:
            message = await self._from_client()
            if message["type"] == "http.request" and not message.get("more_body", False):
                self._whole = True  # as most are
                body.feed(message.get("body", b""))
            elif not await self._read(body, message):
                return False  # nothing has begun
            if rules.profile.signature is not None:
                rules.verify(asked, body, _url_of(scope))
            if not rules.by_handler:
                reply = await self._ask(asked, UNSET)
            runs = reply is None
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        finally:
            if not runs:
                body.close()
        if reply is None:
            self._keep(asked, body)
        else:
            await _send_reply(self._to_client, reply)
        return runs

    def _ask(self, asked: Asked, principal: str | None) -> Awaitable[Reply | None]:
        """Claim the request. Return the reply if it must not run, else None."""
        body = asked.body
        if body.heavy:
            return self._ask_on_a_thread(asked, principal)
        return self.claim(asked, body, self.rules.call(asked, body, principal))

    async def _ask_on_a_thread(self, asked: Asked, principal: str | None) -> Reply | None:
        """Do the same after the fingerprint was made on a thread, not on the event loop."""
        body = asked.body
        await asyncio.to_thread(getattr, body, "fingerprint")
        return await self.claim(asked, body, self.rules.call(asked, body, principal))

    async def _read(self, body: Body, message: Message | None = None) -> bool:
        """Read what is left of the body. Return False if the client is gone before its end.

        `message` is the next one, if it has come already. Raise TooLargeError if the body is too
        large.
        """
        while not self._whole and self._too_large is None:
            message = message or await self._from_client()
            if message["type"] == "http.disconnect":
                return False
            self._feed(body, message)
            message = None
        if self._too_large is not None:
            raise self._too_large
        return True

    def _feed(self, body: Body, message: Message) -> None:
        """Add what the message brings to the body."""
        if message["type"] == "http.request":
            self._whole = not message.get("more_body", False)
            try:
                body.feed(message.get("body", b""))
            except TooLargeError as error:
                self._too_large = error

    def _keep(self, asked: Asked, body: Body) -> None:
        """Keep the body for the application, and what a handler needs to claim."""
        if body.spooled:
            self._messages = _messages_of(body)
        else:
            self._message = {"type": "http.request", "body": body.whole(), "more_body": False}
        if self.run is None:
            self._unclaimed = asked, body
            self._body = body
        elif body.spooled:
            self._body = body

    async def claim_for(self, principal: str | None) -> AsyncAttempt | None:
        """Claim for a handler. Return the attempt, or None if there is no key.

        Raise AnsweredError if the request must not run.
        """
        rules = self.rules
        if principal is not UNSET and not rules.by_handler:
            raise ConfigurationError("the middleware has claimed already; tell it claim='handler'")
        if self.run is None and self._unclaimed is not None:
            if self._sending:
                raise ConfigurationError("claim before the response begins: a part of it was sent")
            asked, body = self._unclaimed
            was_whole = self._whole
            try:
                here = await self._read(body)
                reply = await self._ask(asked, principal) if here else Reply(_GONE, [])
            except OncekeyError as error:
                reply = rules.answers.refusal(error)
            if not was_whole:  # the application has not read all of it yet
                self._messages = _messages_of(body, self._given)
            if reply is not None:
                self.answer = reply
                raise AnsweredError(reply)
            if self.run is not None:
                self.run.become_current()
        return None if self.run is None else attempt_of(self.run)

    async def call(
        self, app: App, scope: Scope, when_over: Callable[[asyncio.Task[None]], None]
    ) -> None:
        """Run the application, record its response, and send it.

        `when_over` is the callback of the task that runs this.
        """
        if self.run is not None:
            self.run.become_current()
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            if self.answer is None or not isinstance(error, Exception):
                reply = await self.failed(error)
                if reply is not None:
                    await self._reply(reply)
                raise
        else:
            if self.open() is not None:
                await self.over()
            self._end_waiting(finished=True)
        finally:
            self._leave()
        if self.answer is not None:
            await self._reply(self.answer)
        task: asyncio.Task[None] | None = asyncio.current_task(running_loop())
        if task is not None and task.remove_done_callback(when_over):
            when_over(task)  # at once: the callback would take another turn of the loop

    def _leave(self) -> None:
        """Close the body, and cut the references of the run to its context and its loop.

        Otherwise every request would leave a reference cycle to the garbage collector.
        """
        if self._timer is not None:
            self._timer.cancel()
        run = self.run
        if run is not None:
            run.abandon()
            run.stop_being_current()
            run.loop = None
        if self._body is not None:
            self._body.close()

    # The request, for the application

    async def receive(self) -> Message:
        """Return the body, piece by piece, then wait until the response goes out.

        A client that disconnects before that does not stop the work. Later messages, such as a
        disconnect during a stream, are passed on.
        """
        message, self._message = self._message, None
        if message is None and self._messages is not None:
            message = next(self._messages, None)
        if message is None and not self._whole and self._unclaimed is not None:
            message = await self._from_client()
            self._feed(self._unclaimed[1], message)
            self._given += len(message.get("body", b""))
        if message is not None:
            return message
        if not self._sending:
            self._listening = self._listening or asyncio.Event()
            await self._listening.wait()
        if self._finished or self._deaf:
            return {"type": "http.disconnect"}
        return await self._from_client()

    # The response of the application

    def send(self, message: Message) -> Coroutine[Any, Any, None]:
        """Send the response to the client, after the end of the request is recorded."""
        if self._changing is None or self.sent:
            return self._send(message)
        return self._send_in_turn(message, self._changing)

    async def _send_in_turn(self, message: Message, changing: asyncio.Lock) -> None:
        async with changing:
            await self._send(message)

    async def _send(self, message: Message) -> None:
        if self.answer is not None:
            return  # drop the response that the framework makes of AnsweredError
        kind = message["type"]
        if self.run is None or self.sent:
            if kind == "http.response.start" and self._unclaimed is not None:
                message = await self._unprotected(message, *self._unclaimed)
            await self._forward(message)
        elif kind == "http.response.start":
            headers = list(message.get("headers", ()))
            self._ordinary = self.rules.ordinary(headers)
            self._start, self._headers = message, headers
            if not self._ordinary:
                self._headers = _lowered(headers)
                if self.rules.endless(self._headers):
                    await self._let_through("the response is a stream")
        elif kind != "http.response.body":
            await self._forward(message)
        elif message.get("more_body", False):
            await self._hold(message.get("body", b""))
        else:
            await self._complete(message)

    async def _complete(self, message: Message) -> None:
        """Record the whole response, then send it."""
        body, status = message.get("body", b""), self._start["status"]
        if self._parts is not None:
            body = b"".join([*self._parts, body])
            message = {"type": "http.response.body", "body": body}
        kept = self.rules.kept(status, self._headers, body, ordinary=self._ordinary)
        later = status >= _REFUSED and says_when(status, self._headers)
        reply = await self.end(status, kept, later=later)
        if reply is None:
            if not self._deaf:
                await self._to_client(self._started())
            if not self._deaf:
                await self._to_client(message)
            self._end_waiting(finished=True)
        else:
            await self._reply(reply)
        self.sent = True

    async def _unprotected(self, start: Message, asked: Asked, body: Body) -> Message:
        """Return the start of a response without a claim, with a notice for the client."""
        reply = self.rules.unclaimed(asked, body, start["status"])
        if reply is not None:
            await self._reply(reply)
        return {**start, "headers": [*start.get("headers", ()), *asked.notice]}

    async def _hold(self, part: bytes) -> None:
        if self._parts is None:
            self._parts = []
        self._parts.append(bytes(part))  # the application may use its buffer again
        self._held += len(part)
        if self._held > self.rules.terms.max_result:
            await self._let_through("the response is larger than max_result")
        elif self._timer is None:
            self._changing = asyncio.Lock()
            self._timer = asyncio.create_task(self._lose_patience(self._changing))

    async def _lose_patience(self, changing: asyncio.Lock) -> None:
        await asyncio.sleep(_HELD_FOR)
        async with changing:
            if not self.sent:
                await self._let_through("the response takes longer than a second to write")

    async def _let_through(self, why: str) -> None:
        """Record the response as not replayable, then send it as it comes."""
        status = self._start["status"]
        reply = await self.end(status, Unkept(why)) if self.keeps(status) else None
        if reply is None:
            await self._forward(self._started())
            body = b"".join(self._parts or ())
            if body:
                await self._forward({"type": "http.response.body", "body": body, "more_body": True})
        else:
            await self._reply(reply)
        self.sent = True

    # The response, for the client

    def _started(self) -> Message:
        """Return the start of the response, with the key if it is sent back."""
        headers = self._headers
        if self._ordinary:
            headers += self.echo
            return {**self._start, "headers": headers}
        for pair in self.echo:
            for name, _ in headers:
                if name == pair[0]:
                    break
            else:
                headers.append(pair)
        return {**self._start, "headers": headers}

    async def _reply(self, reply: Reply) -> None:
        """Send this reply, and nothing more of the application's response."""
        await _send_reply(self._forward, reply)
        self._deaf = True

    async def _forward(self, message: Message) -> None:
        if not self._deaf:
            await self._to_client(message)
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        self._end_waiting(finished=last)

    def _end_waiting(self, *, finished: bool) -> None:
        """Let the application that waits for a message hear that the response goes out."""
        self._finished = self._finished or finished
        self._sending = True
        if self._listening is not None:
            self._listening.set()


def _placed(scope: Scope) -> tuple[str, str]:
    return placed(scope["path"], scope.get("root_path", ""))


def _request_of(scope: Scope, path: str, root: str) -> Request:
    """Return the request for the rules. Its user is the one that another middleware has set."""
    return Request(
        scope["method"],
        path,
        scope.get("query_string", b""),
        scope["headers"],
        scope,
        (lambda: _user(scope["user"])) if "user" in scope else nobody,
        root,
    )


def _user(user: Any) -> str | None:
    """Return Starlette's `identity`, Django's `pk`, or the user itself if it is a name.

    Return None if the user is not authenticated. Raise ConfigurationError for other objects.
    """
    if user is None or getattr(user, "is_authenticated", True) is False:
        return None
    for name in ("identity", "pk", "id"):
        try:
            found = getattr(user, name, None)
        except NotImplementedError:  # Starlette's SimpleUser has no identity
            continue
        if found is not None:
            return str(found)
    found = getattr(user, "username", user)
    if isinstance(found, (str, int)):
        return str(found)
    msg = f"by_user cannot tell who a {type(user).__name__} is; pass scope= a function instead"
    raise ConfigurationError(msg)


def _url_of(scope: Scope) -> str:
    """Return the URL as the client sent it."""
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"localhost").decode("latin-1")
    query = scope.get("query_string", b"").decode("latin-1")
    raw = scope.get("raw_path") or scope["path"].encode()
    path = called(raw.decode("latin-1"), scope.get("root_path", ""))
    url = f"{scope.get('scheme', 'http')}://{host}{path}"
    return f"{url}?{query}" if query else url


def _inner(scope: Scope, exchange: object, *, chooses: bool) -> Scope:
    """Return the scope for the application, so that its response is uncompressed and comes here.

    `chooses` is whether the request may have an Accept-Encoding.
    """
    headers = scope["headers"]
    if chooses:
        headers = [pair for pair in headers if pair[0] != b"accept-encoding"]
    seen = {**scope, "headers": [*headers, _IDENTITY], PLACE: exchange}
    extensions = scope.get("extensions")
    if extensions:
        seen["extensions"] = {name: one for name, one in extensions.items() if name not in _PAST_US}
    return seen


async def _send_reply(send: Send, reply: Reply) -> None:
    """Send the reply to the client."""
    start = {"type": "http.response.start", "status": reply.status, "headers": reply.headers}
    await send(start)
    await send({"type": "http.response.body", "body": reply.body})


def _messages_of(body: Body, start: int = 0) -> Iterator[Message]:
    """Yield the body from this byte on as ASGI messages, at least one."""
    left, skipped = body.size - start, start
    for chunk in body.chunks():
        part, skipped = chunk[skipped:], max(0, skipped - len(chunk))
        if part or not left:
            left -= len(part)
            yield {"type": "http.request", "body": part, "more_body": left > 0}
        if not left:
            return


def _lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return a copy of the headers for the rules: bytes, with names in lower case."""
    copy = list(headers)
    for name, value in copy:
        if type(name) is not bytes or name not in _LOWER or type(value) is not bytes:
            return [(bytes(name).lower(), bytes(value)) for name, value in copy]
    return copy
