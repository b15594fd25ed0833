"""Flask: the middleware around an application, and views that claim by themselves."""

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
    """The application is behind the middleware, which also hears of exceptions.

    Flask makes responses of them, and a response does not tell what is open after a time-out.
    """
    app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, once, **settings)  # type: ignore[method-assign]  # as Flask's documentation says
    got_request_exception.connect(_raised, app)


def _raised(_app: Flask, exception: BaseException) -> None:
    exchange = request.environ.get(PLACE)
    if exchange is not None:
        exchange.raised(exception)


def claimed(*, scope: Whose = UNSET) -> Callable[[View], View]:
    """A decorator for a view under a middleware that has `claim="handler"`.

    It stands below the one that authenticates. `scope` is whose request it is: a function that is
    asked at each request, or None if all clients may see each other's answers. Where the function
    returns None the view runs unprotected. A view that is answered does not run.
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
    """The reply, as a response that hooks of the application may still add to."""
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers]
    response = current_app.response_class(reply.body, reply.status, headers)
    if not any(name == "content-type" for name, _ in headers):
        del response.headers["content-type"]
    return response
