"""Servers on a free port of this machine, each with many applications: one for each test."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn
from aiohttp import web

from tests.http.suite.site import WHICH
from tests.patience import PATIENCE

Address = tuple[str, int]


class Apps(dict[str, Any]):
    """The applications of a server, by the number of their site."""


class AsgiApps(Apps):
    """The same, as one ASGI application."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        number = dict(scope["headers"])[WHICH.encode()].decode()
        await self[number](scope, receive, send)


class WsgiApps(Apps):
    """The same, as one WSGI application."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        number = environ["HTTP_" + WHICH.upper().replace("-", "_")]
        answer: Iterable[bytes] = self[number](environ, start_response)
        return answer


@contextmanager
def serving_asgi(root_path: str = "") -> Iterator[tuple[Apps, Address]]:
    """uvicorn on a thread, with its real event loop and its real parser."""
    logging.getLogger("uvicorn.access").disabled = True
    apps = AsgiApps()
    config = uvicorn.Config(
        apps, lifespan="off", log_config=None, loop="asyncio", ws="none", root_path=root_path
    )
    server = uvicorn.Server(config)
    # Said to be TCP, so that asyncio sends small parts at once instead of collecting them.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        started = threading.Event()
        _tell_when_started(server, started)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        assert started.wait(PATIENCE)
        try:
            yield apps, listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def _tell_when_started(server: uvicorn.Server, started: threading.Event) -> None:
    startup: Callable[..., Any] = server.startup

    async def told(*args: Any, **more: Any) -> None:
        await startup(*args, **more)
        started.set()

    server.startup = told  # type: ignore[method-assign]  # it has no event of its own to wait for


class _Threads(ThreadingMixIn, WSGIServer):
    """A thread for each request."""

    daemon_threads = True
    request_queue_size = 128


class _Quiet(WSGIRequestHandler):
    """Nothing on the terminal for each request, and small parts are sent at once."""

    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its base has the name
        """Said nowhere."""

    def get_stderr(self) -> Any:
        """What the server says of an application that failed."""
        return _Log()


class _Log:
    """A file whose lines go to the log."""

    def write(self, text: str) -> None:
        logging.getLogger("tests.wsgi").info(text)

    def flush(self) -> None:
        """Nothing is held back."""


@contextmanager
def serving_wsgi() -> Iterator[tuple[Apps, Address]]:
    """The server of the standard library on threads."""
    apps = WsgiApps()
    with make_server("127.0.0.1", 0, apps, _Threads, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield apps, ("127.0.0.1", server.server_port)
        finally:
            server.shutdown()
            thread.join(PATIENCE)


class AiohttpApps(Apps):
    """The same for aiohttp, which makes the request of the application that handles it."""

    def __setitem__(self, number: str, app: Any) -> None:
        app.freeze()
        super().__setitem__(number, app)

    def request(self, message: Any, payload: Any, *more: Any) -> Any:
        """The request of the application that is meant."""
        request = self[message.headers[WHICH]]._make_request(message, payload, *more)
        request._loop = asyncio.get_running_loop()
        return request

    async def handle(self, request: Any) -> Any:
        return await self[request.headers[WHICH]]._handle(request)


@contextmanager
def serving_aiohttp() -> Iterator[tuple[Apps, Address]]:
    """The server of aiohttp on a thread."""
    apps = AiohttpApps()
    found: list[Address] = []
    started, over = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        server = web.Server(apps.handle, request_factory=apps.request, access_log=None)
        runner = web.ServerRunner(server)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.append(runner.addresses[0])
        started.set()
        await over.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield apps, found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(PATIENCE)
        loop.close()


SERVING = {"aiohttp": serving_aiohttp, "asgi": serving_asgi, "wsgi": serving_wsgi}
