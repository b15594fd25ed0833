"""The modules of the core, with virtual time in place of real time.

Code is not changed: the names that it imported for clocks, threads, sleep, chance and the keeper
are put in its place. What runs is what runs in production.
"""

import asyncio
import importlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from oncekey import compat
from oncekey.engine import keeper, ticket
from tests.simulation.hub import MICRO, Activity, Hub

EPOCH = 1_767_225_600_000_000
"""The first day of 2026, in microseconds."""

CORE = [
    "attempt",
    "compat",
    "core/call",
    "core/decide",
    "core/machine",
    "engine/breaker",
    "engine/cache",
    "engine/chores",
    "engine/engine",
    "engine/engine_async",
    "engine/keeper",
    "engine/single_flight",
    "engine/ticket",
]


class Stage:
    """Whose world it is at the moment."""

    hub: Hub
    random: Callable[[], bytes]
    took: Callable[[str], None]
    """Hears of every nonce that somebody takes."""


STAGE = Stage()


def monotonic() -> float:
    hub = STAGE.hub
    process = hub.process
    if process is None:
        return hub.now * MICRO
    return (hub.now - process.stood) * MICRO * process.rate


def time_ns() -> int:
    hub = STAGE.hub
    skew = 0 if hub.process is None else hub.process.skew
    return (EPOCH + hub.now + skew) * 1000


def urandom(size: int) -> bytes:
    """A few bytes for whoever asks for many: a stock that is soon empty is filled more often."""
    return STAGE.random()


def new_nonce() -> str:
    """The next out of the stock of the process, which a fork must not share."""
    process = STAGE.hub.process
    assert process is not None
    nonce = process.nonces.take()
    STAGE.took(nonce)
    return nonce


# Threads


class NoLock:
    """Nobody is ever in between: an activity gives up its turn only where it waits."""

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return


class Event:
    def __init__(self) -> None:
        self._set = False
        self._wake: list[Callable[[Any], None]] = []

    def set(self) -> None:
        self._set = True
        for wake in self._wake:
            wake(True)

    def wait(self, seconds: float) -> bool:
        if self._set:
            return True
        hub = STAGE.hub
        self._wake.append(hub.waker())
        return hub.wait(seconds) is True


class Condition:
    def __init__(self, lock: NoLock) -> None:
        self._wake: list[Callable[[Any], None]] = []

    def notify_all(self) -> None:
        wake, self._wake = self._wake, []
        for one in wake:
            one(True)

    notify = notify_all  # who is woken for nothing looks again, and waits again

    def wait(self, seconds: float) -> None:
        hub = STAGE.hub
        self._wake.append(hub.waker())
        hub.wait(seconds)

    def wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = monotonic() + seconds
        while not condition() and monotonic() < end:
            self.wait(end - monotonic())
        return condition()


class Thread:
    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target = target
        self._activity: Activity | None = None

    def start(self) -> None:
        hub = STAGE.hub
        assert hub.process is not None
        self._activity = hub.start(hub.process, self._target)
        self._activity.owner = self

    def join(self, seconds: float) -> None:
        assert self._activity is not None
        if not self._activity.over:
            hub = STAGE.hub
            self._activity.when_over.append(partial(hub.waker(), True))
            hub.wait(seconds)


def _current_thread() -> object:
    current = STAGE.hub.current
    return None if current is None else current.owner


def _ident() -> int:
    current = STAGE.hub.current
    return 0 if current is None else current.ident


THREADING = SimpleNamespace(
    Lock=NoLock,
    Event=Event,
    Condition=Condition,
    Thread=Thread,
    current_thread=_current_thread,
    get_ident=_ident,
)


# Coroutines


class Handle:
    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """As much of an event loop as futures and `asyncio.wait` ask for."""

    _calls = False
    """Whether it calls what somebody gave it to call."""

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> Any:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]  # as much of a loop as it needs

    def call_soon(self, function: Any, *arguments: Any, context: Any = None) -> Handle:
        """A real loop sleeps on when it is told so from another thread."""
        hub = STAGE.hub
        if not (self._calls or hub.current is None or hub.current.ident < 0):
            hub.broken = hub.broken or AssertionError("a loop is woken by other threads")
        return self.call_later(0.0, function, *arguments)

    def call_soon_threadsafe(self, function: Any, *arguments: Any) -> Handle:
        return self.call_later(0.0, function, *arguments)

    def call_later(self, seconds: float, function: Any, *arguments: Any) -> Handle:
        hub = STAGE.hub
        handle = Handle()

        def call(_: object) -> None:
            if not handle.cancelled:
                self._calls = True
                function(*arguments)
                self._calls = False

        hub.at(hub.now + (int(seconds * 1_000_000) + 1 if seconds > 0 else 0), call)
        return handle


def _sleep(seconds: float) -> None:
    STAGE.hub.wait(seconds)


async def _sleep_async(seconds: float) -> None:
    STAGE.hub.wait(seconds)


def _current_task(loop: object) -> Any:
    """The activity: it is done when the call is over, and only that is asked of a task."""
    return STAGE.hub.current


# The keeper


class WhoseKeeper:
    """The keeper of whatever process runs at the moment."""

    def take_up(self, chore: keeper.Chore, delay: float) -> None:
        process = STAGE.hub.process
        assert process is not None
        process.take_up(chore, delay)

    def drop(self, chore: keeper.Chore) -> None:
        process = STAGE.hub.process
        assert process is not None
        process.keeper.drop(chore)


_PLACES: list[tuple[object, object]] = [
    (time.monotonic, monotonic),
    (time.perf_counter, monotonic),
    (time.time_ns, time_ns),
    (os.urandom, urandom),
    (ticket.new_nonce, new_nonce),
    (threading, THREADING),
    (keeper.keeper, WhoseKeeper()),
]


def install() -> None:
    """From now on the core of this process lives in the world that `STAGE` names."""
    for name in CORE:
        module = importlib.import_module(f"oncekey.{name.replace('/', '.')}")
        for attribute, value in list(vars(module).items()):
            for real, virtual in _PLACES:
                if value is real:
                    setattr(module, attribute, virtual)
    setattr(compat, "time", SimpleNamespace(sleep=_sleep))  # noqa: B010 - a module in its place
    replaced = {"sleep": _sleep_async, "current_task": _current_task}
    loops = SimpleNamespace(**{**vars(asyncio), **replaced})
    setattr(compat, "asyncio", loops)  # noqa: B010 - the same
    asyncio._set_running_loop(Loop())  # type: ignore[arg-type]
