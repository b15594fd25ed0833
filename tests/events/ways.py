"""The buses under test, spoken to in one way: coroutines, whatever the colour behind them."""

import asyncio
from concurrent.futures import Future
from contextlib import aclosing
from itertools import islice
from threading import Thread

from oncekey.events import AsyncBus, Bus, Memory, Router
from tests.patience import PATIENCE


class System:
    """A place for events. `routed` returns when a router has seen everything."""

    def __init__(self, where, *, asynchronous, router):
        self.where = where
        self._asynchronous = asynchronous
        self._router = router
        self._opened = []

    def bus(self, domain="scan", **options):
        made = AsyncBus if self._asynchronous else Bus
        self._opened.append(made(self.where, domain=domain, **options))
        return self._opened[-1] if self._asynchronous else _Awaited(self._opened[-1])

    def watcher(self, domain="scan", **options):
        """A bus that can subscribe."""
        self._opened.append(AsyncBus(self.where, domain=domain, **options))
        return self._opened[-1]

    def routed(self, domain="scan", **options):
        if not self._router:
            return
        router = Router(self.where, domain=domain, **options)
        router.step()
        router.close()

    async def aclose(self):
        for bus in self._opened:
            if isinstance(bus, AsyncBus):
                await bus.aclose()
            else:
                bus.close()


class _Awaited:
    """A blocking bus whose methods are coroutines."""

    def __init__(self, bus):
        self._bus = bus

    def __getattr__(self, name):
        method = getattr(self._bus, name)

        async def call(*arguments, **options):
            return method(*arguments, **options)

        return call


async def collected(bus, job, count, **options):
    """The first so many things that a subscription yields; one that hangs is a failure."""
    found = []
    async with asyncio.timeout(PATIENCE), aclosing(bus.subscribe(job, **options)) as watched:
        async for one in watched:
            found.append(one)
            if len(found) == count:
                break
    return found


def coming(watched, count=1):
    """The next so many changes. One that hangs is a failure, and does not hold up the end."""
    made = Future()

    def wait():
        try:
            made.set_result(list(islice(watched, count)))
        except Exception as error:  # noqa: BLE001 - the test is told
            made.set_exception(error)

    Thread(target=wait, daemon=True).start()
    return made


def memory():
    return Memory()
