"""The page of a job, the stream of its events, and the button that starts one."""

from __future__ import annotations

import secrets
import threading
import time
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.events.job import DOMAIN, work
from examples.events.page import STATIC, rendered, start
from oncekey.events import AsyncBus, Bus, Gateway, Memory
from oncekey.events.client import client_app

# The page needs nothing from anywhere else, and says so to the browser.
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


def make_app(where: Memory | str, *, pace: float = 0.6) -> Starlette:
    """An app that can be mounted anywhere. A worker rests `pace` seconds before each event."""
    publishing, reading = Bus(where, domain=DOMAIN), AsyncBus(where, domain=DOMAIN)

    def begin(_: Request) -> Response:
        # In earnest this is a task of a queue, in a process of its own.
        job = secrets.token_hex(4)
        work_on = partial(work, publishing, job, partial(time.sleep, pace))
        threading.Thread(target=work_on, daemon=True).start()
        return RedirectResponse(f"jobs/{job}", 303)

    async def show(request: Request) -> Response:
        job = request.path_params["job"]
        page = await reading.read(job)
        return HTMLResponse(rendered(job, page, request.scope["root_path"]), headers=HEADERS)

    def home(request: Request) -> Response:
        return HTMLResponse(start(request.scope["root_path"]), headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", home),
            Route("/jobs", begin, methods=["POST"]),
            Route("/jobs/{job}", show),
            # Whoever knows the random name of a job may watch it; ask for a login in earnest.
            Mount("/events", Gateway(reading, allow=None)),
            Route("/oncekey-events.js", client_app),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )
