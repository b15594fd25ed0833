"""aiohttp: install the middleware, and claim in a handler.

    app = web.Application()
    install(app, once, scope=by_authorization, routes=["/orders"])

A request that is not covered is passed on unchanged. A covered request is read completely when it
is claimed, and its response is held back until the end of the request is recorded, so that no
client is told "done" before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any, Final, Unpack

from oncekey.attempt import AsyncAttempt, attempt_of
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.extras import needing
from oncekey.functions import UNSET
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError
from oncekey.http.exchange_async import AsyncExchange
from oncekey.http.request import Headers, Request, nobody, owner_of
from oncekey.http.response import Reply, Unkept, says_when
from oncekey.http.routers import of_aiohttp
from oncekey.http.rules import Asked, Rules, Settings
from oncekey.once import Once

with needing("aiohttp", __name__):
    from aiohttp import hdrs, web
    from aiohttp.streams import StreamReader
    from multidict import CIMultiDict

_log = logging.getLogger("oncekey")

__all__ = ["AnsweredError", "IdempotencyMiddleware", "claim", "install"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

USER: Final = web.RequestKey("oncekey.user", object)
"""The key of a request under which `by_user` finds the id of the user."""

_PLACE: Final = web.RequestKey("oncekey.exchange", object)
_STREAM: Final = Unkept("the response is a stream")


def install(app: web.Application, once: Once | None = None, **settings: Unpack[Settings]) -> None:
    """Add the middleware to the application, inside of those that are there.

    Raise ConfigurationError if a setting is not valid.
    """
    app.middlewares.append(IdempotencyMiddleware(once, **settings))
    app.on_response_prepare.append(_prepared)


class IdempotencyMiddleware:
    """The middleware of `install`, which also tells it of responses that are streams."""

    __middleware_version__ = 1  # what `web.middleware` sets on a function

    def __init__(self, once: Once | None = None, **settings: Unpack[Settings]) -> None:
        """Check every setting. Nothing is opened before the first request."""
        self.rules: Final = Rules(once, **settings)
        self._running: set[asyncio.Task[web.StreamResponse]] = set()
        self._is_asked = False

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Run the handler for the request, or return the answer that is kept."""
        rules = self.rules
        status = rules.status
        if status is not None and status.meant(request.method, request.path, _root(request)):
            return await self._tell(request)
        try:
            asked = self._find(request)
        except OncekeyError as error:
            return _response(rules.answers.refusal(error))
        if asked is None:
            if rules.by_handler:
                request.setdefault(_PLACE, None)  # tells `claim` that the middleware is installed
            return await handler(request)
        exchange = AiohttpExchange(rules, asked)
        begun = await exchange.begin(request)
        if isinstance(begun, Reply):
            return _response(begun)
        task = asyncio.ensure_future(exchange.respond(begun, handler))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:  # the handler runs to its end, also when the client is gone
            task.add_done_callback(_tell_of_failure)
            raise

    def _find(self, request: web.Request) -> Asked | None:
        """Return the request if it is covered, else None."""
        rules = self.rules
        headers = [(name.lower(), value) for name, value in request.raw_headers]
        sent = rules.read(headers)
        if sent is None:
            return None
        root = _root(request)
        if not self._is_asked:  # by now all routes are there, and the prefix is known
            self._is_asked = True
            rules.routes.answered_by(partial(of_aiohttp, request.app, root))
        request_of = partial(_request_of, request, headers)
        return rules.find(request.method, request.path, root, sent, request_of)

    async def _tell(self, request: web.Request) -> web.Response:
        """Answer a request for a status."""
        rules = self.rules
        try:
            pointing = rules.looked_for(_request_of(request))
            record = None
            if pointing is not None:
                record = await rules.once.get_async(pointing.key, scope=pointing.scope)
            reply = rules.told(pointing, record)
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        return _response(reply)


def _tell_of_failure(task: asyncio.Task[web.StreamResponse]) -> None:
    """Log the failure: no other code sees it once the client is gone."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("a request failed after its client had gone", exc_info=task.exception())


async def claim(request: web.Request, *, scope: str | None = UNSET) -> AsyncAttempt | None:
    """Claim the request in a handler that has authenticated it. Return the attempt.

    Return None if the request has no key. For a duplicate raise AnsweredError: the middleware
    sends the first answer again. `scope` is the owner of the request, such as the id of the user.
    With None the request runs unprotected. With EVERYBODY all clients may see each other's answers.
    """
    if _PLACE not in request:
        msg = "nothing can be claimed here: install the middleware with claim='handler'"
        raise ConfigurationError(msg)
    exchange = request[_PLACE]
    return await exchange.claim_for(scope) if isinstance(exchange, AiohttpExchange) else None


async def _prepared(request: web.Request, response: web.StreamResponse) -> None:
    """Record a response that the handler sends by itself, before its first part is sent."""
    exchange = request.get(_PLACE)
    if isinstance(exchange, AiohttpExchange):
        await exchange.streamed(request, response)


class AiohttpExchange(AsyncExchange):
    """One covered request: read and claim it, run the handler, record its response."""

    def __init__(self, rules: Rules, asked: Asked) -> None:
        """Start without reading the request."""
        super().__init__(rules, asked.echo)
        self._asked = asked
        self._body = asked.body
        self._unread: web.Request | None = None
        """The request that the handler claims, until its body is read."""

    async def begin(self, request: web.Request) -> web.Request | Reply:
        """Read and claim the request. Return it for the handler, or the answer to it.

        If the handler claims, it may refuse a client before anything of the body is read. Only a
        signature needs all of it at once.
        """
        rules, asked, body = self.rules, self._asked, self._body
        inner = self._unread = _inner(request)
        inner[_PLACE] = self
        if rules.by_handler and rules.profile.signature is None:
            return inner
        try:
            await self._read()
            if rules.profile.signature is not None:
                rules.verify(asked, body, str(request.url))
            call = None if rules.by_handler else rules.call(asked, body)
            reply = await self.claim(asked, body, call)
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        except BaseException:
            body.close()
            raise
        if reply is not None:
            body.close()
            return reply
        return inner

    async def _read(self) -> None:
        """Read the body, unless that is done, so that the handler can read it again."""
        request, self._unread = self._unread, None
        if request is None:
            return
        known = request._read_bytes  # of a handler that has called read(), json() or the like
        if known is not None:
            self._body.feed(known)
            return
        if request.body_exists and request.content._cursor:
            raise ConfigurationError("a part of the body was read before the claim; claim first")
        async for chunk in request.content.iter_any():
            self._body.feed(chunk)
        if self._body.size:
            request._payload = _again(request, self._body)

    async def claim_for(self, principal: str | None) -> AsyncAttempt | None:
        """Claim for a handler. Return the attempt, or None if it runs unprotected.

        Raise AnsweredError if the request must not run.
        """
        rules = self.rules
        if principal is not UNSET and not rules.by_handler:
            raise ConfigurationError("the middleware has claimed already; tell it claim='handler'")
        if self.run is None:
            if self.sent:
                raise ConfigurationError("claim before the response begins: a part of it was sent")
            try:
                await self._read()
                call = rules.call(self._asked, self._body, principal)
                reply = await self.claim(self._asked, self._body, call)
            except OncekeyError as error:
                reply = rules.answers.refusal(error)
            if reply is not None:
                self.answer = reply
                raise AnsweredError(reply)
            if self.run is not None:
                self.run.become_current()
        return None if self.run is None else attempt_of(self.run)

    async def respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Run the handler. Return its response, or the one that is sent instead."""
        if self.run is not None:
            self.run.become_current()
        try:
            return await self._answer(request, handler)
        finally:
            self._leave()
            request._finish()  # closes files of a form, as aiohttp does with its own request

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:  # aiohttp's way to answer by raising
            reply = await self._recorded(error)
            if reply is None:
                raise
        except BaseException as error:
            reply = self.answer if isinstance(error, Exception) else None
            if reply is None:
                reply = await self.failed(error)
                if reply is None:
                    raise
                _log.error("a request failed, and its answer is kept", exc_info=error)
        else:
            if not isinstance(response, web.StreamResponse):  # aiohttp answers 500, and says why
                reply = await self.failed(TypeError(f"a handler returned {response!r}"))
            else:
                reply = await self._recorded(response)
            if reply is None:
                return response
        return _response(reply)

    async def _recorded(self, response: web.StreamResponse) -> Reply | None:
        """Record the response. Return a reply if that is sent instead."""
        if self.run is None and not self.sent and self.answer is None:
            return self._unprotected(response)
        if self.run is None or self.sent or self.answer is not None:
            return self.answer
        headers = [
            (name.lower().encode(), value.encode("utf-8", "surrogateescape"))
            for name, value in response.headers.items()
        ]
        body = response.body if isinstance(response, web.Response) else _STREAM
        kept: bytes | Unkept = _STREAM
        if not self.rules.endless(headers) and (
            body is None or isinstance(body, (bytes, bytearray))
        ):
            kept = self.rules.kept(response.status, headers, bytes(body or b""))
        later = says_when(response.status, headers)
        reply = await self.end(response.status, kept, later=later)
        self.sent = True
        for name, value in self.echo:
            response.headers.setdefault(name.decode(), value.decode("latin-1"))
        return reply

    async def streamed(self, request: web.Request, response: web.StreamResponse) -> None:
        """Record a response that is not replayable. Raise AnsweredError if another is sent."""
        if self.sent or self.answer is not None:
            return
        self.sent = True
        if self.run is None:
            self._unprotected(response)  # it has begun: too late to send another
            return
        reply = await self.end(response.status, _STREAM) if self.keeps(response.status) else None
        if reply is not None:
            # The writer was set up for the stream, and nothing was written yet.
            writer: Any = request.writer
            writer.chunked, writer.length = False, None
            self.answer = reply
            raise AnsweredError(reply)

    def _unprotected(self, response: web.StreamResponse) -> Reply | None:
        """Tell the client that nothing was claimed. Return a reply if that is sent instead."""
        reply = self.rules.unclaimed(self._asked, self._body, response.status)
        for name, value in self._asked.notice:
            response.headers[name.decode()] = value.decode("latin-1")
        return reply

    def _leave(self) -> None:
        run = self.run
        if run is not None:
            run.abandon()
            run.stop_being_current()
            run.loop = None
        self._body.close()


def _root(request: web.Request) -> str:
    """Return the prefix below which the application of the middleware was added to another one."""
    root, apps = "", request.match_info.apps
    if apps[0] is not request.app:
        for outer, inner in pairwise(apps[: apps.index(request.app) + 1]):
            for info in (resource.get_info() for resource in outer.router.resources()):
                if info.get("app") is inner:
                    root = info.get("prefix", root)  # there is none for a domain
    return root


def _request_of(request: web.Request, headers: Headers | None = None) -> Request:
    """Return the request for the rules. Its user is the one that another middleware has set."""
    user = request.get(USER)
    return Request(
        request.method,
        request.path,
        request.rel_url.raw_query_string.encode(),
        headers or [(name.lower(), value) for name, value in request.raw_headers],
        request,
        (lambda: None if user is None else owner_of(user)) if USER in request else nobody,
        _root(request),
    )


def _inner(request: web.Request) -> web.Request:
    """Return the request for the handler, whose response must not be compressed yet."""
    headers = CIMultiDict(request.headers)
    headers[hdrs.ACCEPT_ENCODING] = "identity"
    read, request._read_bytes = request._read_bytes, None  # else aiohttp refuses to clone it
    try:
        inner = request.clone(headers=headers)
    finally:
        request._read_bytes = read
    inner._read_bytes = read  # of an outer middleware, for the handler
    for key in request:
        inner[key] = request[key]
    return inner


def _again(request: web.Request, body: Body) -> StreamReader:
    """Return a stream from which the handler reads the body."""
    limit = body.size + 1  # above it the connection would be told to pause
    reader = StreamReader(request.protocol, limit, loop=asyncio.get_running_loop())
    for chunk in body.chunks():
        reader.feed_data(chunk)
    reader.feed_eof()
    return reader


def _response(reply: Reply) -> web.Response:
    """Return the reply as a response of aiohttp, which has a length of its own."""
    headers = CIMultiDict(
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))
        for name, value in reply.headers
        if name != b"content-length"
    )
    return web.Response(status=reply.status, headers=headers, body=reply.body)
