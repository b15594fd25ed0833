"""FastAPI: a dependency that claims a request after the user was authenticated.

    app.add_middleware(IdempotencyMiddleware, once=once, claim="handler")

    @app.post("/orders", dependencies=[claimed(current_user_id)])
    async def order(...): ...

FastAPI runs dependencies in their order, and this one after the one that it is given.
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
    """The attempt at this request, for the one whom the dependency `scope` names.

    `scope` is a dependency like any other, and gives the id of the user, or None for nobody known,
    who runs unprotected; `claimed(None)` lets all users share one scope. A duplicate does not reach
    the handler.
    """
    if scope is None:
        return Depends(_claimed_for_all)
    if not callable(scope):
        msg = f"claimed takes a dependency that gives the id of the user, not {scope!r}"
        raise ConfigurationError(msg)

    async def claimed_for(request: Request, user: Any = Depends(scope)) -> AsyncAttempt | None:  # noqa: B008 - what the dependency gives, as FastAPI spells it
        return await claim(request, scope=user)

    # FastAPI reads annotations by name, and these are not names of this module's globals for it.
    claimed_for.__annotations__ = {"request": Request, "user": Any, "return": Any}
    return Depends(claimed_for)


async def _claimed_for_all(request: Request) -> Any:
    return await claim(request, scope=EVERYBODY)
