"""The front door on every store of this machine, with a clock that tests move."""

import asyncio
import threading

import pytest

from oncekey import Once
from oncekey.stores import MemoryStore, SQLiteStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore


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


@pytest.fixture
def once(store, events):
    return Once(store, observers=[events.append])


@pytest.fixture
def other(store, events):
    """The same store, as another process would use it: nothing else is shared."""
    return Once(store, observers=[events.append])


class Gate:
    """Two events of one meeting: somebody is inside, and may go on."""

    def __init__(self):
        self.inside = threading.Event()
        self.go_on = threading.Event()

    def enter(self):
        self.inside.set()
        assert self.go_on.wait(30)

    async def enter_async(self):
        await asyncio.to_thread(self.enter)

    def until_inside(self):
        assert self.inside.wait(30)

    async def until_inside_async(self):
        await asyncio.to_thread(self.until_inside)


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def runs():
    """One entry for each time the code really ran."""
    return []
