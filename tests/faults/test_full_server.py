"""A server that is full and evicts nothing: no new claims, and those that run come to their end."""

import pytest

from oncekey import NotRecordedError, Once, StoreError
from oncekey.engine import engine, engine_async
from tests.faults.colours import COLOURS
from tests.servers.redis import RedisServer
from tests.servers.valkey import ValkeyServer
from tests.still import patiently


class Server:
    """A server whose memory is used up on demand."""

    def __init__(self, server):
        self.server = server
        self.url, self.version = server.url, server.version

    def fill(self, limit="1"):
        with self.server.client() as client:
            client.config_set("maxmemory", limit)

    def empty(self):
        self.fill("0")


@pytest.fixture
def start(tmp_path):
    started = []

    def starting(kind):
        started.append(kind(tmp_path, **{"maxmemory-policy": "noeviction"}).start())
        return Server(started[-1])

    yield starting
    for server in started:
        server.stop()


@pytest.fixture
def full(start):
    """It knows flags of scripts, as Redis 7 and Valkey do."""
    return start(ValkeyServer)


@pytest.fixture(params=COLOURS)
def colour(request):
    return request.param


@pytest.fixture
def calling(colour):
    made = []

    def make(server):
        made.append(colour(Once(server.url, cache=False)))
        return made[-1]

    yield make
    for caller in made:
        caller.close()


def test_a_new_claim_is_refused_as_not_done(full, calling):
    caller = calling(full)
    caller.run("before", lambda: "kept")
    full.fill()
    for _ in range(4):  # a server that answers is not out of reach, however often it refuses
        with pytest.raises(StoreError, match="is full") as told:
            caller.run("new", lambda: pytest.fail("it ran"))
        assert told.value.happened is False
    assert caller.run("before", lambda: pytest.fail("it ran")) == "kept"
    full.empty()
    assert caller.once.get("new") is None
    assert caller.run("new", lambda: "done") == "done"


def test_a_running_attempt_is_renewed_and_settled(full, calling, until):
    caller = calling(full)

    def work():
        full.fill()
        first = caller.once.get("running").lease_end
        until(lambda: caller.once.get("running").lease_end > first)
        return "x" * 10_000  # no small thing for a server that is full

    assert len(caller.run("running", work, lease="600ms")) == 10_000
    record = caller.once.get("running")
    assert (record.status, record.attempt) == ("completed", 1)
    assert caller.run("running", work) == record.value


def test_a_failed_attempt_is_released(full, calling):
    caller = calling(full)

    def work():
        full.fill()
        raise ValueError

    with pytest.raises(ValueError):
        caller.run("failing", work)
    assert caller.once.get("failing").status == "released"
    with pytest.raises(StoreError, match="is full"):
        caller.run("failing", work)
    full.empty()
    assert caller.run("failing", lambda: "done") == "done"
    assert caller.once.get("failing").attempt == 2


def test_an_old_server_is_told_when_it_has_room_again(start, calling, until, monkeypatch):
    for module in (engine, engine_async):
        monkeypatch.setattr(module, "SETTLE_PATIENCE", 0.0)
    server = start(RedisServer)
    caller = calling(server)

    def work():
        server.fill()
        return "done"

    if server.version >= (7,):  # the one on the PATH may be new
        assert caller.run("old", work) == "done"
    else:
        with pytest.raises(NotRecordedError) as told:
            caller.run("old", work)
        assert told.value.result == "done"
    server.empty()
    until(lambda: caller.once.get("old").status == "completed")
    assert patiently(caller.run, "old", work) == "done"  # refused until the keeper has seen it too
