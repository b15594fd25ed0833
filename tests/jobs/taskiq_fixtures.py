"""Fixtures for tasks of Taskiq in memory. A test module imports the ones it asks for."""

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from taskiq import (
    AsyncTaskiqTask,
    InMemoryBroker,
    SimpleRetryMiddleware,
)

from oncekey import (
    Once,
)
from oncekey.jobs import by_fields
from oncekey.jobs.taskiq import once_task
from tests.patience import PATIENCE

BY_ORDER = by_fields("order")


@dataclass
class Order:
    number: str


@pytest.fixture
async def once():
    once = Once("memory://")
    yield once
    await once.aclose()


@pytest.fixture
async def broker():
    broker = InMemoryBroker()
    retrying = SimpleRetryMiddleware(3, types_of_exceptions=[ValueError])
    broker.add_middlewares(retrying)
    await broker.startup()
    yield broker
    await broker.wait_all()
    await broker.shutdown()


@pytest.fixture
def ran():
    return []


@pytest.fixture(params=["coroutine", "blocking"])
def coloured(request):
    """A blocking function, as it is or as a coroutine function."""

    def of(function):
        if request.param == "blocking":
            return function

        async def coroutine(order: str, amount: int = 40) -> str:
            return str(function(order, amount))

        return coroutine

    return of


@pytest.fixture
def charge(broker, once, ran, coloured):
    def charge(order: str, amount: int = 40) -> str:
        ran.append(order)
        return f"{order}:{amount}:{len(ran)}"

    return broker.register_task(once_task(once, BY_ORDER)(coloured(charge)), "charge")


async def result(sent: AsyncTaskiqTask[Any]) -> Any:
    found = await sent.wait_result(check_interval=0.005, timeout=PATIENCE)
    found.raise_for_error()
    return found.return_value


@pytest.fixture
def kicked(broker, monkeypatch):
    """Every message that is sent."""
    kicked = []
    kick = broker.kick

    async def spy(message):
        kicked.append(message)
        await kick(message)

    monkeypatch.setattr(broker, "kick", spy)
    return kicked


async def broken(_message):
    raise OSError("no broker")


class Elsewhere:
    """Somebody has the key, on a thread of its own."""

    def __init__(self, once, scope, key):
        self._inside, self._leave = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(once, scope, key))

    def _hold(self, once, scope, key):
        with once.options(scope=scope).attempt(key) as attempt:
            self._inside.set()
            assert self._leave.wait(PATIENCE)
            attempt.complete("theirs")

    def __enter__(self):
        self._thread.start()
        assert self._inside.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self.leave()

    def leave(self):
        self._leave.set()
        self._thread.join(PATIENCE)
        self._thread.join()
