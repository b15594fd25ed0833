"""aiohttp: handlers are coroutines, and the middleware is one of the application's own."""

import asyncio
from typing import Any

from aiohttp import web

from oncekey import current_async
from oncekey.http import EVERYBODY
from oncekey.http.aiohttp import USER, claim, install
from tests.http.suite import service
from tests.http.suite.service import ROUTES, Answer, Asked
from tests.http.suite.site import TOKENS, Run, Site

SERVER = "aiohttp"


@web.middleware
async def authentication(request: web.Request, handler: Any) -> Any:
    """Knows the users by their tokens."""
    request[USER] = TOKENS.get(request.headers.get("authorization", ""))
    try:
        return await handler(request)
    except TimeoutError:  # aiohttp would answer 504, and the others answer 500
        return web.Response(status=500)


def make(site: Site, **settings: Any) -> web.Application:
    """The application behind its middlewares."""
    app = web.Application(middlewares=[authentication], client_max_size=0)
    install(app, site.once, **settings)
    for route in ROUTES:
        app.router.add_route("*", route, handler(site, route))
    return app


def handler(site: Site, route: str) -> Any:
    async def handle(request: web.Request) -> web.StreamResponse:
        user: Any = request[USER]
        if site.claims:
            await claim(request, scope=user or EVERYBODY)
        asked = Asked(
            request.method,
            request.path,
            {name.lower(): value for name, value in request.headers.items()},
            await request.read(),
            user,
            request.match_info.get("parameter", ""),
        )
        if route in NATIVE:
            site.runs.append(Run(route, asked.body))
            answer = await NATIVE[route](site)
        else:
            answer = await asyncio.to_thread(service.handle, site, route, asked)
        return await response(request, answer)

    return handle


async def response(request: web.Request, answer: Answer) -> web.StreamResponse:
    """The answer in aiohttp's terms."""
    if isinstance(answer.body, bytes):
        made: web.StreamResponse = web.Response(status=answer.status, body=answer.body)
    else:
        made = web.StreamResponse(status=answer.status)
    made.headers.extend(answer.headers)
    if not isinstance(answer.body, bytes):
        await made.prepare(request)
        parts = iter(answer.body)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            await made.write(part)
        await made.write_eof()
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
