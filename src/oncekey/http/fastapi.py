"""FastAPI: a dependency that claims a request after the user is authenticated.

    app.add_middleware(IdempotencyMiddleware, once=once, claim="handler")

    @app.post("/orders", dependencies=[claimed(current_user_id)])
    async def order(...): ...

FastAPI runs dependencies in order, and this one after the dependency that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncekey.attempt import AsyncAttempt
from oncekey.errors import ConfigurationError
from oncekey.extras import needing
from oncekey.http.asgi import claim
from oncekey.http.request import EVERYBODY

with needing("fastapi", __name__):
    from fastapi import Depends, Request

__all__ = ["claimed"]


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
    return Depends(claimed_for)


async def _claimed_for_all(request: Request) -> Any:
    return await claim(request, scope=EVERYBODY)
