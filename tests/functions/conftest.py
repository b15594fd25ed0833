"""The front door on every store of this machine, with a clock that tests move."""

import asyncio
import threading

import pytest

from oncekey import Once, Policy
from oncekey.engine import breaker, chores, engine, engine_async
from oncekey.stores import MemoryStore, SQLiteStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.leases import unhurried
from tests.patience import PATIENCE

PATIENT = Policy(wait=PATIENCE)
SOON = 0.05


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request, clock, tmp_path):
    if request.param == "memory":
        yield FaultyStore(MemoryStore(clock=clock))
    else:
        real = SQLiteStore(tmp_path / "records.db", clock=clock)
        yield FaultyStore(real)
        real.close()


@pytest.fixture
def events():
    """Everything the observers were told, in order."""
    return []


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch):
    """The tests take their time, and the keeper does not."""
    unhurried(monkeypatch)
    monkeypatch.setattr(breaker, "KNOCK_EVERY", SOON)
    for module in (chores, engine, engine_async, engine, engine_async):
        monkeypatch.setattr(module, "RETRY", SOON)


@pytest.fixture
def once(store, events):
    return Once(store, observers=[events.append], policy=PATIENT)


@pytest.fixture
def other(store, events):
    """The same store, as another process would use it: nothing else is shared."""
    return Once(store, observers=[events.append], policy=PATIENT)


class Gate:
    """Two events of one meeting: somebody is inside, and may go on."""

    def __init__(self):
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def enter(self):
        self.inside.set()
        assert self.go_on.wait(PATIENCE)

    async def enter_async(self):
        await asyncio.to_thread(self.enter)

    def until_inside(self):
        assert self.inside.wait(PATIENCE)

    async def until_inside_async(self):
        await asyncio.to_thread(self.until_inside)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def runs():
    """One entry for each time the code really ran."""
    return []
