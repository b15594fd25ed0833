"""The server of the HTTP benchmark: a small application, bare or under one of the protections.

`python -m bench.cases.http_app SIDE STORE SOCKET` serves it on a socket that listens already.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request  # noqa: TC002 - frameworks read annotations at run time
from starlette.responses import JSONResponse
from starlette.routing import Route

from oncekey import Once
from oncekey.http.asgi import IdempotencyMiddleware

_runs = count()


async def charge(request: Request) -> JSONResponse:
    """Every run answers with another number, so that a replay can be told from a run."""
    order = await request.json()
    return JSONResponse({"charged": order["amount"], "run": next(_runs)}, 201)


def _app(endpoint: Callable[..., Any] = charge) -> Starlette:
    return Starlette(routes=[Route("/charge", endpoint, methods=["POST"])])


def bare(_store: str) -> Any:
    return _app()


def oncekey(store: str) -> Any:
    return IdempotencyMiddleware(_app(), Once(store), scope=None)


def oncekey_uncached(store: str) -> Any:
    return IdempotencyMiddleware(_app(), Once(store, cache=False), scope=None)


def oncekey_brief(store: str) -> Any:
    return IdempotencyMiddleware(_app(), Once(store), scope=None, ttl="2s")


# Peers live in folders of their own, which only their server sees: types know nothing of them.


def idemkit(store: str) -> Any:
    peer = import_module("idemkit")
    return peer.IdempotencyMiddleware(_app(), backend=peer.RedisBackend.from_url(store))


def asgi_idempotency_header(store: str) -> Any:
    peer = import_module("idempotency_header_middleware")
    backend = import_module("idempotency_header_middleware.backends.redis")
    client = import_module("redis.asyncio").Redis.from_url(store)
    return peer.IdempotencyHeaderMiddleware(_app(), backend=backend.RedisBackend(client))


def idemptx(store: str) -> Any:
    peer = import_module("idemptx")
    client = import_module("redis.asyncio").Redis.from_url(store)
    backend = import_module("idemptx.backend").AsyncRedisBackend(client)
    protected = peer.idempotent(storage_backend=backend, required=False)(charge)

    async def endpoint(request: Request) -> Any:
        return await protected(request=request)  # it wants it by name

    return _app(endpoint)


def serve(side: str, store: str, listening: int) -> None:
    """Until somebody ends the process; one worker, and nothing is logged but trouble."""
    config = uvicorn.Config(globals()[side](store), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
