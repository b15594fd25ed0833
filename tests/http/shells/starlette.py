"""Starlette: handlers are coroutines, and the middleware is one of the application's own."""

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from oncekey import current_async
from oncekey.http import EVERYBODY
from oncekey.http.asgi import IdempotencyMiddleware, claim
from tests.http.suite import service
from tests.http.suite.service import ANY, ROUTES, Answer, Asked
from tests.http.suite.site import TOKENS, Run, Site

SERVER = "asgi"
HELD_FOR = "oncekey.http.asgi._HELD_FOR"


class Backend(AuthenticationBackend):
    """Knows the users by their tokens."""

    async def authenticate(self, conn):
        name = TOKENS.get(conn.headers.get("authorization", ""))
        return None if name is None else (AuthCredentials(), SimpleUser(name))


def make(
    site: Site,
    *,
    outside: tuple[Middleware, ...] = (),
    inside: tuple[Middleware, ...] = (),
    **settings: Any,
) -> Starlette:
    """The application, with other middlewares around ours where a test wants them."""
    ours = Middleware(IdempotencyMiddleware, once=site.once, **settings)
    routes = [Route(path, handler(site, path), methods=list(ANY)) for path in ROUTES]
    authentication = Middleware(AuthenticationMiddleware, backend=Backend())
    return Starlette(routes=routes, middleware=[authentication, *outside, ours, *inside])


def handler(site: Site, route: str) -> Callable[[Request], Any]:
    async def handle(request: Request) -> Response:
        user = request.user.display_name if request.user.is_authenticated else None
        if site.claims:
            await claim(request, scope=user or EVERYBODY)
        asked = Asked(
            request.method,
            request.url.path,
            dict(request.headers),
            await request.body(),
            user,
            request.path_params.get("parameter", ""),
        )
        if route in NATIVE:
            site.runs.append(Run(route, asked.body))
            return response(await NATIVE[route](site))
        return response(await run_in_threadpool(service.handle, site, route, asked))

    return handle


def response(answer: Answer) -> Response:
    """The answer in Starlette's terms."""
    kind = Response if isinstance(answer.body, bytes) else StreamingResponse
    made = kind(answer.body, answer.status)  # type: ignore[arg-type]  # each takes its own kind
    made.raw_headers += [(name.encode(), value.encode()) for name, value in answer.headers]
    return made


async def note(site: Site) -> Answer:
    attempt = current_async()
    before = attempt.notes
    await attempt.note(charge="ch_1")
    return service.noted(site, attempt, before)


async def keep(site: Site) -> Answer:
    current_async().keep()
    return Answer(422, (service.JSON,), b'{"run": %d}' % len(site.runs))


# What coroutines write differently.
NATIVE = {"/note": note, "/keep": keep}
