"""A shop for ASGI and one for WSGI, whose orders and records are in the folder of the test."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from oncekey import Once
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.http.flask import install

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))
SETTINGS: Any = {"scope": None, "routes": ["/orders", "/parts"], "required": True}


def order() -> int:
    """Write an order down. Return the number of orders."""
    with (FOLDER / "orders.txt").open("a") as file:
        file.write("order\n")
    return len((FOLDER / "orders.txt").read_text().splitlines())


async def orders(_request: Request) -> Response:
    return JSONResponse({"order": order()}, status_code=201)


async def parts(_request: Request) -> Response:
    return StreamingResponse(_parts())


async def _parts() -> AsyncIterator[memoryview]:
    order()
    space = bytearray(4)
    for part in (b"one,", b"two,", b"six."):
        space[:] = part
        yield memoryview(space)


def asgi() -> Starlette:
    """Return the shop for ASGI servers."""
    routes = [Route(f"/{one.__name__}", one, methods=["POST"]) for one in (orders, parts)]
    app = Starlette(routes=routes)
    once = Once(f"sqlite:///{FOLDER}/records.db")
    app.add_middleware(IdempotencyMiddleware, once=once, **SETTINGS)
    return app


def wsgi() -> flask.Flask:
    """Return the shop for WSGI servers."""
    app = flask.Flask("shop")

    @app.post("/orders")
    def orders() -> tuple[dict[str, int], int]:
        return {"order": order()}, 201

    @app.post("/parts")
    def parts() -> flask.Response:
        order()
        return flask.Response(iter([b"one,", b"two,", b"six."]))

    install(app, Once(f"sqlite:///{FOLDER}/records.db"), **SETTINGS)
    return app


if "SHOP_FOLDER" in os.environ:
    asgi_app, wsgi_app = asgi(), wsgi()
