"""The decorator for views that claim by themselves, when they know whose request it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

from oncekey.compat import invoke
from oncekey.errors import ConfigurationError
from oncekey.functions import UNSET
from oncekey.http.django_colours import ask_async
from oncekey.http.django_exchange import Exchange
from oncekey.http.django_exchange_async import AsyncExchange
from oncekey.http.django_request import PLACE, response_of
from oncekey.http.marks import EVERYBODY, NOBODY
from oncekey.policy import switched_off

View = Callable[..., Any]
Principal = Callable[[Any], Any]

_seen: Final[list[bool]] = []


def middleware_is_there() -> None:
    """Views that claim may rely on it."""
    _seen[:] = [True]


def claimed(*, scope: Principal | None = UNSET) -> Callable[[View], View]:
    """A decorator: the view runs once, and duplicates get its first answer.

    `scope` is a function of the request that says whose it is, such as
    `lambda request: request.user.pk`, and None where nobody can be told apart from others: such a
    request runs unprotected. `scope=None` says that all clients may see each other's answers.
    Without it the scope of the setting `ONCEKEY` is asked.
    """
    if scope is not UNSET and scope is not None and not callable(scope):
        msg = f"scope must be a function of the request, or None, but it is {scope!r}"
        raise ConfigurationError(msg)

    def decorate(view: View) -> View:
        return _coroutine(view, scope) if iscoroutinefunction(view) else _blocking(view, scope)

    return decorate


def _blocking(view: View, scope: Any) -> View:  # noqa: ANN401 - see `claimed`
    @wraps(view)
    def claiming(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a response
        request = _request(args, kwargs)
        exchange = _exchange(request)
        if exchange is None or exchange.claimed:
            return view(*args, **kwargs)
        principal = _principal(invoke(scope, request)) if callable(scope) else _fixed(scope)
        if principal is not NOBODY:
            if isinstance(exchange, Exchange):
                reply = exchange.claim(principal)
            else:
                reply = async_to_sync(exchange.claim)(principal)
            if reply is not None:
                return response_of(reply)
        with exchange.current():
            return view(*args, **kwargs)

    return claiming


def _coroutine(view: View, scope: Any) -> View:  # noqa: ANN401 - see `claimed`
    @wraps(view)
    async def claiming(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a response
        request = _request(args, kwargs)
        exchange = _exchange(request)
        if exchange is None or exchange.claimed:
            return await view(*args, **kwargs)
        principal = _fixed(scope)
        if callable(scope):
            found: Any = await ask_async(scope, request)
            principal = _principal(await found if hasattr(type(found), "__await__") else found)
        if principal is not NOBODY:
            if isinstance(exchange, AsyncExchange):
                reply = await exchange.claim(principal)
            else:
                reply = await sync_to_async(exchange.claim)(principal)
            if reply is not None:
                return response_of(reply)
        with exchange.current():
            return await view(*args, **kwargs)

    return claiming


def _request(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - Django's own, or one around it
    """The first argument of a view, the second of a method."""
    for one in (*args[:2], kwargs.get("request")):
        if hasattr(one, "META"):
            return one
    raise ConfigurationError("claimed is for views, whose first argument is the request")


def _exchange(request: Any) -> Exchange | AsyncExchange | None:  # noqa: ANN401 - see above
    """The exchange of the request; None where it is not covered, or has no key."""
    if not _seen and not switched_off():
        msg = "a claimed view needs oncekey.http.django.IdempotencyMiddleware in MIDDLEWARE"
        raise ConfigurationError(msg)
    return getattr(request, PLACE, None)


def _principal(found: Any) -> Any:  # noqa: ANN401 - a string or a number, which the rules check
    return NOBODY if found is None else found


def _fixed(scope: Any) -> Any:  # noqa: ANN401 - see `claimed`
    return EVERYBODY if scope is None else scope
