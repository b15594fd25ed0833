"""FastAPI: install the middleware, and a dependency that claims after the user is authenticated.

    install(app, once, claim="handler")

    @app.post("/orders", dependencies=[claimed(current_user_id)])
    async def order(...): ...

FastAPI runs dependencies in order, and this one after the dependency that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Unpack
from weakref import WeakSet

from oncekey.attempt import AsyncAttempt
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.http.asgi import IdempotencyMiddleware, claim
from oncekey.http.openapi import describe
from oncekey.http.request import EVERYBODY
from oncekey.http.rules import Rules, Settings, once_of
from oncekey.once import Once

with needing("fastapi", __name__):
    from fastapi import Depends, FastAPI, Request, routing

__all__ = ["claimed", "install"]

_claiming: Final[WeakSet[Callable[..., Any]]] = WeakSet()


def install(app: FastAPI, once: Once | None = None, **settings: Unpack[Settings]) -> None:
    """Add the middleware to the application, and say in its OpenAPI document what it does.

    With `claim="handler"` the operations that have the dependency `claimed` are described,
    otherwise those that the middleware covers. Raise ConfigurationError if a setting is not valid.
    """
    rules = Rules(once_of(once), **settings)
    app.add_middleware(IdempotencyMiddleware, once=rules.once, **settings)
    plain, described = app.openapi, _Described(app, rules)
    app.openapi = lambda: described.of(plain())  # type: ignore[method-assign]  # as FastAPI's documentation says


class _Described:
    """The document of an application with the middleware described, made once."""

    def __init__(self, app: FastAPI, rules: Rules) -> None:
        self._app = app
        self._rules = rules
        self._plain: dict[str, Any] | None = None
        self._made: dict[str, Any] = {}

    def of(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the document. FastAPI gives the same object until its routes change."""
        if plain is not self._plain:
            claiming = set(self._claiming()) if self._rules.by_handler else None
            covers = self._rules.covers
            if claiming is not None:
                covers = lambda *route: route in claiming and self._rules.covers(*route)  # noqa: E731 - the shorter way to say it
            self._made, self._plain = describe(plain, self._rules, covers=covers), plain
        return self._made

    def _claiming(self) -> Iterator[tuple[str, str]]:
        """Yield method and path of each route that has the dependency."""
        # Newer FastAPI includes routers as they are, and this function looks into them.
        every: Callable[..., Iterator[Any]] = getattr(routing, "iter_route_contexts", iter)
        for route in every(self._app.routes):
            if _claims(getattr(route, "dependant", None)):
                for method in route.methods:
                    yield method, route.path_format


def _claims(dependant: Any) -> bool:
    if dependant is None:
        return False
    return dependant.call in _claiming or any(map(_claims, dependant.dependencies))


def claimed(scope: Callable[..., Any] | None) -> Any:
    """Return a dependency that claims the request and gives its attempt.

    `scope` is a dependency that gives the id of the user. If it gives None, the request runs
    unprotected. `claimed(None)` lets all users share one scope. A duplicate does not reach the
    handler.
    """
    if scope is None:
        return Depends(_claimed_for_all)
    if not callable(scope):
        msg = f"claimed takes a dependency that gives the id of the user, not {scope!r}"
        raise ConfigurationError(msg)

    async def claimed_for(request: Request, user: Any = Depends(scope)) -> AsyncAttempt | None:  # noqa: B008 - what the dependency gives, as FastAPI spells it
        return await claim(request, scope=user)

    # FastAPI evaluates annotations that are strings, and does not find these names in the globals
    # of this module, so they are set as objects.
    claimed_for.__annotations__ = {"request": Request, "user": Any, "return": Any}
    _claiming.add(claimed_for)
    return Depends(claimed_for)


async def _claimed_for_all(request: Request) -> Any:
    return await claim(request, scope=EVERYBODY)


_claiming.add(_claimed_for_all)
