"""Ways to take a server away from its callers, and to bring it back."""

import signal

import pytest

from tests.patience import until

PLACES = ("redis", "redis paused", "postgres")
SHORT = "socket_timeout=0.2"  # a server that stands still is given up soon


class Redis:
    """A server that loses nothing of what it has acknowledged. `place` is its URL for workers."""

    outages = 3

    def __init__(self, server):
        self._server = server
        self.place = self.url = server.url

    def take_away(self, number):
        self._server.kill()
        assert self._server.process.returncode == -signal.SIGKILL

    def bring_back(self):
        self._server.start()
        with self._server.client() as client:
            until(lambda: not client.info("persistence")["loading"])


class PausedRedis(Redis):
    """It stands still, and then does what it was told meanwhile, even by callers who left."""

    outages = 1

    def __init__(self, server):
        super().__init__(server)
        self.place = f"{server.url}?{SHORT}"

    def take_away(self, number):
        self._server.process.send_signal(signal.SIGSTOP)

    def bring_back(self):
        self._server.process.send_signal(signal.SIGCONT)


class Postgres:
    """Its clients are sent away, or it leaves at once as after a crash."""

    outages = 3

    def __init__(self, server):
        self._server = server
        self.place = self.url = server.new_database()

    def take_away(self, number):
        self._server.stop(signal.SIGQUIT if number % 2 else signal.SIGINT)

    def bring_back(self):
        self._server.start()


@pytest.fixture(params=PLACES)
def server(request):
    """A server of this test's own."""
    if request.param == "postgres":
        yield Postgres(request.getfixturevalue("breakable_postgres"))
        return
    start = request.getfixturevalue("another_redis")
    kind = Redis if request.param == "redis" else PausedRedis
    server = kind(start(appendonly="yes", appendfsync="always"))
    yield server
    if kind is PausedRedis:  # one that stands still does not even hear that it shall end
        server.bring_back()
