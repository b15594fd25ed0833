"""The shop: orders are taken, handed to the worker, and watched on one connection each.

$ make orders    # builds the page
$ REDIS_URL=redis://localhost:6379/0 uvicorn --factory examples.orders.app:app
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Final

import redis
import redis.asyncio
from fastapi import FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

from examples.orders.tasks import DOMAIN, PLAN, REDIS, STAGES, work
from oncekey.events import AsyncBus, Gateway

PAGE: Final = Path(__file__).parents[2] / "build" / "orders" / "static"


def app() -> FastAPI:
    bus = AsyncBus(REDIS, domain=DOMAIN, stages=STAGES)
    # Whose an order is. In earnest this is a table of your database.
    owners, looking = redis.Redis.from_url(REDIS), redis.asyncio.Redis.from_url(REDIS)

    async def allow(scope: Any, job: str) -> bool:
        """Whoever has placed an order may watch each of its jobs."""
        shopper = Request(scope).cookies.get("shopper", "")
        owner = await looking.get(f"owner:{job.partition('/')[0]}")
        return owner == shopper.encode()

    shop = FastAPI()

    @shop.post("/orders")
    def order(request: Request, response: Response) -> dict[str, str]:
        shopper = request.cookies.get("shopper") or secrets.token_hex(8)
        response.set_cookie("shopper", shopper, httponly=True, samesite="lax")
        name = f"order-{secrets.token_hex(3)}"
        owners.set(f"owner:{name}", shopper, ex=86400)
        for part in PLAN:
            work.delay(name, part)
        return {"order": name}

    shop.mount("/events", Gateway(bus, allow=allow))
    shop.mount("/", StaticFiles(directory=PAGE, html=True))
    return shop
