"""The services for a reader with curl and a browser, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from examples.chain import site as chain_site
from examples.chain.site import Show
from examples.demo.case import Case
from examples.demo.cases import CASES
from examples.demo.server import BOOK, Options, listening, services
from examples.events.app import make_app
from examples.events.ending import Ending, Server
from examples.payments.gateway import Gateway
from oncekey.events import Memory

TTL = "10s"
WATCH = "/watch"
CHAIN = "/chain"
TITLES = {"retry": "A retry gets the same answer", "concurrent": "Two at once"}
"""Where it matters that one server is asked, and not two."""


def commands(case: Case, base: str) -> Iterator[str]:
    """What a reader types to see the case."""
    asked = [ask.curl(base) for ask in case.asks]
    if case.name == "concurrent":
        yield " & \\\n  ".join(asked) + " & wait"
        return
    for number, command in enumerate(asked):
        if case.name == "expiry" and number:
            yield f"sleep {int(TTL.removesuffix('s')) + 1}"
        yield command


def everything(services: ASGIApp, show: Show) -> ASGIApp:
    """The services, below /watch the page of a job, and below /chain that of a chain."""
    pages = Starlette(
        routes=[Mount(WATCH, make_app(Memory())), Mount(CHAIN, chain_site.make_app(show))]
    )

    async def both(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        app = pages if path.startswith((f"{WATCH}/", f"{CHAIN}/")) else services
        await app(scope, receive, send)

    return both


def serve(port: int) -> int:
    """Serve both services until Ctrl-C; the exit code."""
    try:
        listener = listening(port)
    except OSError as error:
        print(f"Port {port} cannot be used ({error.strerror}); --port N chooses another.")
        return 1
    logging.basicConfig(format="%(levelname)s:     %(message)s")  # as uvicorn writes it
    with listener, tempfile.TemporaryDirectory(prefix="oncekey-demo-") as name:
        folder = Path(name)
        store = f"sqlite:///{folder}/records.db"
        show = Show()
        app = Ending(everything(services(Options(store, folder, ttl=TTL)), show))
        server = Server(app, lifespan="on", log_level="info")
        introduce(f"http://localhost:{listener.getsockname()[1]}")
        with contextlib.closing(show), contextlib.suppress(KeyboardInterrupt):
            asyncio.run(server.serve([listener]))
        print(f"\nCharges in the gateway's book: {len(Gateway(folder / BOOK).charges())}")
    return 0


def introduce(base: str) -> None:
    """Say what can be asked."""
    print(f"Payments and webhooks on {base}, with records that live for {TTL}. Ctrl-C ends it.")
    for number, case in enumerate(CASES, 1):
        print(f"\n# {number}. {TITLES.get(case.name, case.title)}")
        for command in commands(case, base):
            print(command)
    print(f"\n# A job to start and to watch, in a browser\n{base}{WATCH}/")
    print(f"\n# Three services that are killed while they work, in a browser\n{base}{CHAIN}/")
    print(flush=True)
