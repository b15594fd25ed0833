"""Middleware for ASGI: Starlette, FastAPI, Litestar, Quart and any other.

A request that is not covered goes through untouched. A covered one is read whole, and its response
is held back until the record says how it ended: no client hears "done" before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Unpack

from oncekey.attempt import AsyncAttempt
from oncekey.compat import running_loop
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.asgi_exchange import Exchange
from oncekey.http.asgi_messages import App, Receive, Scope, Send, send_reply
from oncekey.http.asgi_request import PLACE, inner, request_of
from oncekey.http.errors import AnsweredError
from oncekey.http.protocol import Rules
from oncekey.http.settings import Settings
from oncekey.once import Once

_log = logging.getLogger("oncekey")

__all__ = ["AnsweredError", "IdempotencyMiddleware", "claim"]


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
        self._when_over: Final = self._is_over  # one for all requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application has answered, now or before."""
        rules = self.rules
        if scope["type"] != "http" or rules.passes(scope["headers"]):
            await self._pass(scope, receive, send)
            return
        if rules.status is not None and rules.status.meant(scope["method"], scope["path"]):
            await self._tell(scope, send)
            return
        exchange = Exchange(rules, receive, send)
        runs = await exchange.enter(scope)
        if runs is None:
            await self._pass(scope, receive, send)
        elif runs:
            loop = running_loop()
            task = loop.create_task(exchange.run(self.app, inner(scope, exchange)))
            over = self._running[task] = loop.create_future()
            task.add_done_callback(self._when_over)
            try:  # it runs to its end, also when nobody waits for it any more
                await over
            except asyncio.CancelledError:
                exchange.detach()
                task.add_done_callback(_tell_of_failure)
                raise
            task.result()

    def _pass(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """The application answers, and nothing is touched."""
        if self.rules.by_handler:
            scope.setdefault(PLACE, None)  # so that a handler knows that we are there
        return self.app(scope, receive, send)

    async def _tell(self, scope: Scope, send: Send) -> None:
        """Whoever asks has heard how the request is doing."""
        rules = self.rules
        try:
            pointing = rules.looked_for(request_of(scope))
            record = None
            if pointing is not None:
                record = await rules.once.get_async(pointing.key, scope=pointing.scope)
            reply = rules.told(pointing, record)
        except OncekeyError as error:
            reply = rules.answers.refusal(error)
        await send_reply(send, reply)

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
    if PLACE not in asgi:
        msg = "nothing can be claimed here: install IdempotencyMiddleware with claim='handler'"
        raise ConfigurationError(msg)
    exchange: Exchange | None = asgi[PLACE]  # None: not covered, or without a key
    return None if exchange is None else await exchange.claim_for(scope)
