"""Flask: install the middleware, and a decorator for views that claim by themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Unpack

from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.functions import UNSET
from oncekey.http.request import EVERYBODY
from oncekey.http.response import Reply
from oncekey.http.rules import Settings
from oncekey.http.wsgi import PLACE, IdempotencyMiddleware, exchange_of
from oncekey.once import Once

with needing("flask", __name__):
    from flask import Flask, Response, current_app, got_request_exception, request

__all__ = ["claimed", "install"]

View = Callable[..., Any]
Whose = Callable[[], object] | str | int | None


def install(app: Flask, once: Once | None = None, **settings: Unpack[Settings]) -> None:
    """Put the middleware around the application, and report its exceptions to the middleware.

    Flask turns exceptions into responses, and a response does not show whether the outcome is
    uncertain, as it is after a time-out.
    """
    app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, once, **settings)  # type: ignore[method-assign]  # as Flask's documentation says
    got_request_exception.connect(_raised, app)


def _raised(_app: Flask, exception: BaseException) -> None:
    exchange = request.environ.get(PLACE)
    if exchange is not None:
        exchange.raised(exception)


def claimed(*, scope: Whose = UNSET) -> Callable[[View], View]:
    """Return a decorator for a view under a middleware that has `claim="handler"`.

    Put it below the decorator that authenticates. `scope` is the owner of the request: a function
    that returns it, a fixed name, or None if all clients may see each other's answers. If the
    function returns None, the view runs unprotected. For a duplicate the view does not run.
    """
    if callable(scope) or scope is UNSET or scope is None or isinstance(scope, (str, int)):
        return lambda view: _claimed(view, scope)
    msg = f"scope must be a function such as lambda: g.user.id, or None, but it is {scope!r}"
    raise ConfigurationError(msg)


def _claimed(view: View, scope: Whose) -> View:
    @wraps(view)
    def claiming(*args: Any, **kwargs: Any) -> Any:
        run = current_app.ensure_sync(view)
        exchange = exchange_of(request.environ)
        if exchange is not None:
            fixed: Any = EVERYBODY if scope is None else scope
            whose: Any = scope() if callable(scope) else fixed
            reply = exchange.ask_for(whose)
            if reply is not None:
                return _response(reply)
        return run(*args, **kwargs)

    return claiming


def _response(reply: Reply) -> Response:
    """Return the reply as a Flask response, to which hooks of the application may add."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers]
    response = current_app.response_class(reply.body, reply.status, headers)
    if not any(name == "content-type" for name, _ in headers):
        del response.headers["content-type"]
    return response
