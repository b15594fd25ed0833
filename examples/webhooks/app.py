"""POST /webhook: each event is processed once, keyed by `X-Idempotency-Key`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from oncekey import Once
from oncekey.http import Profile
from oncekey.http.asgi import IdempotencyMiddleware


class Receiver:
    """Processes events. A file has a line for each, so that anybody can count."""

    def __init__(self, file: Path | str, seconds: float = 0) -> None:
        """No event, or those that others have processed; each takes some seconds."""
        self._file = Path(file)
        self._seconds = seconds

    async def webhook(self, request: Request) -> Response:
        """POST /webhook: the event has been processed."""
        name = await _event_id(request)
        if name is None:
            return JSONResponse({"error": "the body must be an event with an id"}, status_code=400)
        await self.process(name)
        return JSONResponse({"success": True, "message": f"Webhook {name} processed successfully"})

    async def process(self, name: str) -> None:
        """Here a real receiver would do something."""
        await asyncio.sleep(self._seconds)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")

    def processed(self) -> list[str]:
        """The events that were really processed, in order."""
        return self._file.read_text("utf-8").splitlines() if self._file.exists() else []


def make_app(
    once: Once, receiver: Receiver, profile: str | Profile = "webhook", **settings: Any
) -> Starlette:
    """The receiver on a store, which it closes when it stops.

    While the store is down it processes all the same.
    """

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        await once.aclose()

    return Starlette(
        routes=[Route("/webhook", receiver.webhook, methods=["POST"])],
        middleware=[
            Middleware(
                IdempotencyMiddleware,
                once=once,
                profile=profile,
                routes=["/webhook"],
                **settings,
            )
        ],
        lifespan=lifespan,
    )


def app() -> Starlette:
    """For `uvicorn --factory examples.webhooks.app:app`; $REDIS_URL names the store."""
    file = os.environ.get("WEBHOOKS_FILE", "webhooks.txt")
    return make_app(Once(), Receiver(file, float(os.environ.get("WEBHOOKS_SECONDS", "0"))))


async def _event_id(request: Request) -> str | None:
    """The id of the event in the body; None where there is none that can be printed."""
    try:
        event = await request.json()
    except (ValueError, RecursionError):
        return None
    name = event.get("id") if isinstance(event, dict) else None
    return name if isinstance(name, str) and name and name.isprintable() else None
