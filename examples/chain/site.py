"""The page on which each order goes its way while services are killed."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from random import Random
from string import Template
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from examples.chain.chain import Chain, Totals, Way, on_files
from examples.chain.services import SERVICES

STATIC = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
TITLES = {"orders": "Orders", "payments": "Payments", "mail": "Mail"}


@dataclass(frozen=True)
class Moment:
    """What the page shows."""

    running: bool = False
    kills: Mapping[str, int] = field(default_factory=dict)
    ways: Sequence[Way] = ()
    totals: Totals | None = None


class Show:
    """One chain at a time, in a thread that starts dead services again."""

    def __init__(self, *, orders: int = 30, pace: float = 0.25, every: float = 1.5) -> None:
        """`every` is about how many seconds lie between two kills, 0 for none at random."""
        self.orders, self._pace, self._every = orders, pace, every
        self._lock = threading.Lock()
        self._wanted: list[str] = []
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self.moment = Moment()

    def start(self) -> None:
        """Begin a new chain, unless one is running."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._over.clear()
                self.moment = Moment(running=True)
                self._thread = threading.Thread(target=self._play)
                self._thread.start()

    def kill(self, name: str) -> None:
        """Kill a service of the chain that is running."""
        with self._lock:
            self._wanted.append(name)

    def close(self) -> None:
        """End the chain and its processes."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _play(self) -> None:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncekey-chain-"))
            settings = on_files(Path(folder), self.orders, pace=self._pace)
            chain = stack.enter_context(Chain(settings))
            due = self._dues()
            running = True
            while running and not self._over.wait(0.1):
                for name in self._doomed(next(due)):
                    chain.kill(name)
                chain.tend()
                running = not chain.settled()
                self.moment = Moment(running, dict(chain.kills), chain.ways(), chain.totals())

    def _doomed(self, random: str | None) -> list[str]:
        with self._lock:
            doomed, self._wanted = self._wanted, []
        return list({*doomed, *([random] if random else [])})

    def _dues(self) -> Iterator[str | None]:
        """Yield whom to kill now, and mostly nobody."""
        chance = Random()  # noqa: S311 - no secret
        next_at = time.monotonic() + self._every
        while True:
            if self._every and time.monotonic() >= next_at:
                next_at = time.monotonic() + self._every * chance.uniform(0.5, 1.5)
                yield chance.choice(list(SERVICES))
            else:
                yield None


def make_app(show: Show) -> Starlette:
    """An app that can be mounted anywhere."""

    def home(request: Request) -> Response:
        return HTMLResponse(rendered(show, request.scope["root_path"]), headers=HEADERS)

    def state(_: Request) -> Response:
        return HTMLResponse(parts(show.moment), headers=HEADERS)

    def start(_: Request) -> Response:
        show.start()
        return RedirectResponse(".", 303)

    async def kill(request: Request) -> Response:
        name = parse_qs((await request.body()).decode("ascii", "replace")).get("name", [""])[0]
        if name in SERVICES:
            show.kill(name)
        return RedirectResponse(".", 303)

    return Starlette(
        routes=[
            Route("/", home),
            Route("/state", state),
            Route("/start", start, methods=["POST"]),
            Route("/kill", kill, methods=["POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )


def rendered(show: Show, root: str) -> str:
    """The whole page, as it is without any script."""
    text = (STATIC / "page.html").read_text("utf-8")
    return Template(text).substitute(
        root=escape(root), orders=show.orders, parts=parts(show.moment)
    )


def parts(moment: Moment) -> str:
    """What changes on the page."""
    return "\n".join(_parts(moment))


def _parts(moment: Moment) -> Iterator[str]:
    totals = moment.totals
    said = str(totals) if totals is not None else "Nothing has been ordered yet."
    state = "running" if moment.running else "over" if totals is not None else "idle"
    yield f'<p id="totals" role="status" data-state="{state}">{escape(said)}</p>'
    yield '<ul id="services">'
    for name in SERVICES:
        times = moment.kills.get(name, 0)
        killed = f"killed {times} {'time' if times == 1 else 'times'}" if times else "never killed"
        button = (
            f'<button name="name" value="{name}" form="kill" aria-label="Kill {name}">Kill</button>'
            if moment.running
            else ""
        )
        yield (
            f'<li><span class="name">{TITLES[name]}</span> <span class="quiet">{killed}</span>'
            f"{button}</li>"
        )
    yield "</ul>"
    if not moment.ways:
        return
    yield '<table><thead><tr><th scope="col">Order</th><th scope="col">Placed</th>'
    yield '<th scope="col">Charged</th><th scope="col">Mailed</th></tr></thead><tbody>'
    first = moment.ways[0].placed
    for way in moment.ways:
        at = f"{way.placed - first:.1f} s"
        yield f'<tr data-order="{way.number}"><th scope="row">{way.number}</th><td>{at}</td>'
        yield _cell(way.placed, way.charged) + _cell(way.placed, way.mailed) + "</tr>"
    yield "</tbody></table>"


def _cell(placed: float, came: list[float]) -> str:
    if not came:
        return '<td class="waiting">on its way</td>'
    late = f"after {max(0.0, came[0] - placed):.1f} s"
    if len(came) > 1:
        return f'<td class="doubled">{len(came)} times!</td>'
    return f'<td class="done">{late}</td>'


def serve(port: int) -> int:
    """Serve the page until Ctrl-C; the exit code."""
    from examples.demo.server import listening, server_of

    try:
        listener = listening(port)
    except OSError as error:
        print(f"Port {port} cannot be used ({error.strerror}); --page N chooses another.")
        return 1
    show = Show()
    with listener, contextlib.closing(show), contextlib.suppress(KeyboardInterrupt):
        base = f"http://localhost:{listener.getsockname()[1]}"
        print(f"Watch a chain of services on {base}. Ctrl-C ends it.", flush=True)
        asyncio.run(server_of(make_app(show)).serve([listener]))
    return 0
