"""Middleware for ASGI: Starlette, FastAPI, Litestar, Quart and any other.

A request that is not covered goes through untouched. A covered one is read whole, and its response
is held back until the record says how it ended: no client hears "done" before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Unpack

from oncekey.attempt_async import AsyncAttempt
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.http.asgi_exchange import Exchange
from oncekey.http.asgi_messages import App, Receive, Scope, Send, send_reply
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError
from oncekey.http.protocol import Rules
from oncekey.http.request import Request, nobody
from oncekey.http.settings import Settings
from oncekey.once import Once
from oncekey.options import UNSET

_log = logging.getLogger("oncekey")

__all__ = ["AnsweredError", "IdempotencyMiddleware", "claim"]

_PLACE: Final = "oncekey.exchange"
_IDENTITY: Final = (b"accept-encoding", b"identity")
# The response would go past us by these, or without us.
_PAST_US: Final = frozenset(
    f"http.response.{name}" for name in ("pathsend", "zerocopysend", "trailers", "push")
)


class IdempotencyMiddleware:
    """Makes requests that arrive twice happen once.

    With `claim="handler"` nothing is claimed before the handler says `await claim(request, ...)`,
    after it has authenticated the user; the middleware then only holds the response back.
    """

    def __init__(self, app: App, once: Once | None = None, **settings: Unpack[Settings]) -> None:
        """Every setting is checked now, and nothing is opened."""
        self.app: Final = app
        self.rules: Final = Rules(once, **settings)
        self._running: dict[asyncio.Task[None], asyncio.Future[None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application has answered, now or before."""
        rules = self.rules
        if scope["type"] != "http" or rules.passes(scope["headers"]):
            await self._pass(scope, receive, send)
            return
        if rules.status is not None and rules.status.meant(scope["method"], scope["path"]):
            await self._tell(scope, send)
            return
        try:
            asked = rules.find(
                scope["method"], scope["path"], scope["headers"], lambda: _request(scope)
            )
        except OncekeyError as error:
            await send_reply(send, rules.answers.refusal(error))
            return
        if asked is None:
            await self._pass(scope, receive, send)
            return
        body, runs = rules.body(asked), False
        exchange = Exchange(rules, asked, body, receive, send)
        try:
            try:
                if not await _read(receive, body):
                    return  # the client is gone, and nothing has begun
                if rules.profile.signature is not None:
                    rules.verify(asked, body, _url(scope))
                reply = None if rules.by_handler else await exchange.claim(rules.call(asked, body))
            except OncekeyError as error:
                reply = rules.answers.refusal(error)
            if reply is not None:
                await send_reply(send, reply)
                return
            runs = True
        finally:
            if not runs:  # else the exchange closes it
                body.close()
        await self._run(exchange, _inner(scope, exchange))

    def _pass(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The application answers, and nothing is touched."""
        if self.rules.by_handler:
            scope.setdefault(_PLACE, None)  # so that a handler knows that we are there
        return self.app(scope, receive, send)

    async def _tell(self, scope: Scope, send: Send) -> None:
        """Whoever asks has heard how the request is doing."""
        rules = self.rules
        try:
            pointing = rules.looked_for(_request(scope))
            record = None
            if pointing is not None:
                record = await rules.once.get_async(pointing.key, scope=pointing.scope)
            reply = rules.told(pointing, record)
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        await send_reply(send, reply)

    async def _run(self, exchange: Exchange, scope: Scope) -> None:
        """The application runs to its end, also when nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(exchange.run(self.app, scope))
        over = self._running[task] = loop.create_future()
        task.add_done_callback(self._is_over)
        try:
            await over
        except asyncio.CancelledError:
            exchange.detach()
            task.add_done_callback(_tell_of_failure)
            raise
        task.result()

    def _is_over(self, task: asyncio.Task[None]) -> None:
        over = self._running.pop(task)
        if not over.done():
            over.set_result(None)


def _tell_of_failure(task: asyncio.Task[None]) -> None:
    """Nobody else would hear of it."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("a request failed after its client had gone", exc_info=task.exception())


async def claim(request: Any, *, scope: str | None = UNSET) -> AsyncAttempt | None:  # noqa: ANN401 - a Request of any framework, or its ASGI scope
    """The attempt at this request, for a handler that has authenticated it; None without a key.

    A duplicate does not come back from here: the middleware sends the first answer again.
    `scope` is whose request it is, such as the id of the user. With None it runs unprotected; with
    EVERYBODY all clients may see each other's answers.
    """
    asgi: Scope = request if isinstance(request, dict) else getattr(request, "scope", {})
    if "type" not in asgi:
        msg = f"claim takes the request, or its ASGI scope, not {type(request).__name__}"
        raise ConfigurationError(msg)
    if _PLACE not in asgi:
        msg = "nothing can be claimed here: install IdempotencyMiddleware with claim='handler'"
        raise ConfigurationError(msg)
    exchange: Exchange | None = asgi[_PLACE]  # None: not covered, or without a key
    return None if exchange is None else await exchange.claim_for(scope)


def _request(scope: Scope) -> Request:
    return Request(
        scope["method"],
        scope["path"],
        scope.get("query_string", b""),
        scope["headers"],
        scope,
        (lambda: _user(scope["user"])) if "user" in scope else nobody,
    )


def _user(user: Any) -> str | None:  # noqa: ANN401 - as the framework has it
    """Who it is: Starlette's `identity`, Django's `pk`, or the user itself if it is a name."""
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


def _url(scope: Scope) -> str:
    headers = dict(scope["headers"])
    host = headers.get(b"host", b"localhost").decode("latin-1")
    query = scope.get("query_string", b"").decode("latin-1")
    path = scope.get("raw_path") or scope["path"].encode()
    url = f"{scope.get('scheme', 'http')}://{host}{path.decode('latin-1')}"
    return f"{url}?{query}" if query else url


async def _read(receive: Receive, body: Body) -> bool:
    """Whether the whole body came."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return False
        body.feed(message.get("body", b""))
        if not message.get("more_body", False):
            return True


def _inner(scope: Scope, exchange: Exchange) -> Scope:
    """The request as the application sees it: its response is whole, plain and through us."""
    headers = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
    extensions = scope.get("extensions") or {}
    return {
        **scope,
        "headers": [*headers, _IDENTITY],
        "extensions": {name: one for name, one in extensions.items() if name not in _PAST_US},
        _PLACE: exchange,
    }
