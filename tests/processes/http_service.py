"""The services of the demonstration and a shop under the profile `ietf`, in one server process."""

import asyncio
import sys
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.demo.server import options_of, run, services
from oncekey import Once
from oncekey.http.asgi import IdempotencyMiddleware

gate = asyncio.Event()


async def order(request: Request) -> Response:
    await gate.wait()
    return JSONResponse({"order": (await request.json())["item"]}, status_code=201)


async def open_gate(request: Request) -> Response:
    gate.set()
    return Response()


def shop(store: str) -> Starlette:
    return Starlette(
        routes=[
            Route("/orders", order, methods=["POST"]),
            Route("/open", open_gate, methods=["POST"]),
        ],
        middleware=[
            Middleware(IdempotencyMiddleware, once=Once(store), scope=None, routes=["/orders"])
        ],
    )


if __name__ == "__main__":
    options = options_of(sys.argv[1:])
    demo, orders = services(options), shop(options.store)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        chosen = orders if scope.get("path") in {"/orders", "/open"} else demo
        await chosen(scope, receive, send)

    run(app)
