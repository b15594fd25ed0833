"""The example's app on a server in a thread of this process."""

import asyncio
import threading

from examples.demo.server import listening
from examples.events.app import make_app
from examples.events.ending import Ending, Server
from examples.events.job import DOMAIN, events
from oncekey.events import Bus
from tests.patience import PATIENCE


class Site:
    """A page for each job. The test is the worker, and says when it publishes what."""

    def __init__(self, where, port=0):
        self.bus = Bus(where, domain=DOMAIN)
        self.app = Ending(make_app(where))
        self._server = Server(self.app, lifespan="off", log_level="warning")
        self._listener = listening(port)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        serve = self._server.serve([self._listener])
        self._thread = threading.Thread(target=asyncio.run, args=(serve,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self.app.stop()
        self._thread.join(PATIENCE)
        self._listener.close()
        self.bus.close()
        assert not self._thread.is_alive()

    def job(self, name):
        return f"{self.url}/jobs/{name}"

    def publish(self, name, first, last):
        """The events from the first to the last, counted from 1, each of them twice."""
        for draft in events(name)[first - 1 : last]:
            self.bus.publish_batch([draft])
            self.bus.publish_batch([draft])
