"""A gateway on a server in a thread of this process, and a page that watches with EventSource."""

import asyncio
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route

from examples.demo.server import listening
from oncekey.events.client import client_app
from tests.patience import PATIENCE

PAGE = """<!doctype html><link rel=icon href=data:,><title>a page</title>
<script>
  // What the page shows: what the server rendered, and what came since.
  function watch(address, shown) {
    window.shown = shown;
    window.resyncs = [];
    window.opened = 0;
    const source = new EventSource(address);
    source.onopen = () => (opened += 1);
    source.onmessage = (message) => shown.push(JSON.parse(message.data).seq);
    source.addEventListener("resync", (message) => {
      resyncs.push(JSON.parse(message.data).reason);
      shown.length = 0;
    });
  }
  // Nothing of the page runs until the server lets go of it, as in a long task of a script.
  function hang() {
    const request = new XMLHttpRequest();
    request.open("GET", "/hold", false);
    request.send();
  }
</script>"""


class GatewaySite:
    """Below /events is the gateway. `release` lets go of a page that hangs."""

    def __init__(self, gateway):
        self.held = threading.Event()
        self.release = threading.Event()
        routes = [
            Route("/", lambda _: HTMLResponse(PAGE)),
            Route("/hold", self._hold),
            Route("/oncekey-events.js", client_app),
            Mount("/events", gateway),
        ]
        self._listener = listening(0)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        config = uvicorn.Config(Starlette(routes=routes), lifespan="off", log_level="warning")
        self._server = uvicorn.Server(config)
        serve = self._server.serve([self._listener])
        self._thread = threading.Thread(target=asyncio.run, args=(serve,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.release.set()
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        self._listener.close()
        assert not self._thread.is_alive()

    def _hold(self, _request):
        self.held.set()
        self.release.wait(PATIENCE)
        return Response(b"")
