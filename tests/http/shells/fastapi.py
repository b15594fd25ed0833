"""FastAPI: handlers are plain functions on threads, and a dependency claims."""

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Request, Response
from starlette.middleware.authentication import AuthenticationMiddleware

from oncekey.http import EVERYBODY
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.http.fastapi import claimed
from tests.http.shells.starlette import HELD_FOR, SERVER, Backend, response
from tests.http.suite import service
from tests.http.suite.service import ANY, ROUTES, Asked
from tests.http.suite.site import Site

__all__ = ["HELD_FOR", "SERVER", "make"]


def make(site: Site, **settings: Any) -> FastAPI:
    """The application, with every route by the framework's own decorator."""
    app = FastAPI(openapi_url=None, dependencies=[claimed(whose)] if site.claims else [])
    app.add_middleware(IdempotencyMiddleware, once=site.once, **settings)
    app.add_middleware(AuthenticationMiddleware, backend=Backend())
    for path in ROUTES:
        app.api_route(path, methods=list(ANY))(handler(site, path))
    return app


def user_of(request: Request) -> str | None:
    """Who asks."""
    return request.user.display_name if request.user.is_authenticated else None


def whose(request: Request) -> Any:
    """Whose answers it may see; who is not known shares those of all who are not."""
    return user_of(request) or EVERYBODY


async def body_of(request: Request) -> bytes:
    """What was sent; only a coroutine can read it."""
    return await request.body()


def handler(site: Site, route: str) -> Callable[..., Response]:
    def handle(request: Request, body: bytes = Depends(body_of)) -> Response:
        parameter = request.path_params.get("parameter", "")
        headers = dict(request.headers)
        asked = Asked(request.method, request.url.path, headers, body, user_of(request), parameter)
        return response(service.handle(site, route, asked))

    return handle
