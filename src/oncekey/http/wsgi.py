"""Middleware for WSGI: Flask, Pyramid, Bottle and any other.

A request that is not covered goes through untouched. A covered one is read whole, and its response
is held back until the record says how it ended: no client hears "done" before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final, Unpack

from oncekey.attempt import Attempt
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError
from oncekey.http.protocol import Asked, Rules
from oncekey.http.reply import Reply
from oncekey.http.request import Request
from oncekey.http.settings import Settings
from oncekey.http.wsgi_exchange import Exchange
from oncekey.http.wsgi_request import (
    PLACE,
    headers_named,
    inner,
    path_of,
    read,
    request_of,
    url_of,
)
from oncekey.http.wsgi_response import App, Environ, Response, StartResponse, send_start
from oncekey.once import Once

__all__ = ["AnsweredError", "IdempotencyMiddleware", "claim", "exchange_of"]


class IdempotencyMiddleware:
    """Makes requests that arrive twice happen once.

    With `claim="handler"` nothing is claimed before the handler says `claim(environ, ...)`, after
    it has authenticated the user; the middleware then only holds the response back.
    """

    def __init__(self, app: App, once: Once | None = None, **settings: Unpack[Settings]) -> None:
        """Every setting is checked now, and nothing is opened."""
        self.app: Final = app
        self.rules: Final = Rules(once, **settings)
        self._keys = [name for name in self.rules.profile.keys if not name.startswith("/")]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """The response of the application, made now or before."""
        rules = self.rules
        method, path = environ["REQUEST_METHOD"], path_of(environ)
        if rules.status is not None and rules.status.meant(method, path):
            return _send(start_response, self._told(request_of(environ, path)))
        try:
            keys = headers_named(self._keys, environ)  # the others are not made for nothing
            asked = rules.find(method, path, keys, lambda: request_of(environ, path))
        except OncekeyError as error:
            return _send(start_response, rules.answers.refusal(error))
        if asked is None:
            environ.setdefault(PLACE, None)  # a handler that claims learns that we are there
            return self.app(environ, start_response)
        body = rules.body(asked)
        with contextlib.ExitStack() as closing:
            closing.callback(body.close)
            found = self._claimed(asked, body, environ)
            if isinstance(found, Reply):
                return _send(start_response, found)
            closing.pop_all()  # from here on the exchange closes it
        return Response(found, start_response).run(self.app, inner(environ, found, body))

    def _claimed(self, asked: Asked, body: Body, environ: Environ) -> Exchange | Reply:
        """The exchange in which the application runs, or what the client is told at once."""
        rules = self.rules
        try:
            refused = read(environ, body)
            if refused is not None:
                return refused
            if rules.profile.signature is not None:
                rules.verify(asked, body, url_of(environ))
            exchange = Exchange(rules, asked, body)
            reply = None if rules.by_handler else exchange.claim(rules.call(asked, body))
        except OncekeyError as error:
            return rules.answers.refusal(error)
        exchange.stream.seek(0)  # whoever looked at the body has left it at its end
        return exchange if reply is None else reply

    def _told(self, request: Request) -> Reply:
        """What whoever asks hears of how a request is doing."""
        rules = self.rules
        try:
            pointing = rules.looked_for(request)
            record = None
            if pointing is not None:
                record = rules.once.get(pointing.key, scope=pointing.scope)
            return rules.told(pointing, record)
        except OncekeyError as error:
            return rules.answers.refusal(error)


def claim(environ: Environ, *, scope: str | None = UNSET) -> Attempt | None:
    """The attempt at this request, for a handler that has authenticated it; None without a key.

    A duplicate does not come back from here: the middleware sends the first answer again.
    `scope` is whose request it is, such as the id of the user. With None it runs unprotected; with
    EVERYBODY all clients may see each other's answers.
    """
    exchange = exchange_of(environ)
    return None if exchange is None else exchange.claim_for(scope)


def exchange_of(environ: Environ) -> Exchange | None:
    """What is going on with the request; None when it is not covered, or without a key."""
    try:
        exchange: Exchange | None = environ[PLACE]
    except (KeyError, TypeError, IndexError):
        if isinstance(environ, dict) and "REQUEST_METHOD" in environ:
            msg = "nothing can be claimed here: oncekey.http.wsgi.IdempotencyMiddleware is missing"
        else:
            msg = f"claim takes the environ of the request, not {type(environ).__name__}"
        raise ConfigurationError(msg) from None
    return exchange


def _send(start_response: StartResponse, reply: Reply) -> list[bytes]:
    send_start(start_response, reply)
    return [reply.body]
