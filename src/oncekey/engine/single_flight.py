"""Single flight: of all callers in this process with one key, one talks to the store.

The first caller leads. The others wait for it to land and are then judged by the record that it
left, without asking the store; if it left none, one of them leads next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic

from msgspec import Struct

from oncekey.compat import renew_after_fork, running_loop
from oncekey.core.call import Identity
from oncekey.core.record import Record
from oncekey.core.requests import Answer

Left = Record | Callable[[], Record | None] | None
"""The record that a flight left, or how to work it out."""


class Flight(Struct, eq=False):
    """One caller's way to the store and back, and who waits for it."""

    identity: Identity
    thread: int
    """Of the caller who leads it."""
    answer: Answer | None = None
    """What the store said last."""
    taken_at: float = 0.0
    """When it said so, by the clock of this process."""
    landed: bool = False
    left: Left = None
    wake: list[Callable[[], object]] = []
    """What is called when it lands; a list of its own, which msgspec makes for each."""

    def outcome(self) -> Answer | None:
        """The record that the flight left, and the store's time as far as it can be told."""
        left = self.left
        record = left() if callable(left) else left
        if record is None or self.answer is None:
            return None
        return Answer(record, self.answer.now + round((monotonic() - self.taken_at) * 1_000_000))

    def wait(self, seconds: float) -> bool:
        """Block until it landed, at most so long; whether it did.

        A flight that this very thread leads, for a coroutine, cannot land while it blocks here.
        """
        if self.thread == threading.get_ident():
            return self.landed
        event = threading.Event()
        self.wake.append(event.set)
        return self.landed or event.wait(seconds)  # it says that it landed, then looks who waits

    async def wait_async(self, seconds: float) -> bool:
        """Wait until it landed, at most so long; whether it did."""
        loop = running_loop()
        over: asyncio.Future[bool] = loop.create_future()
        self.wake.append(partial(_has_landed, over, threading.get_ident()))
        if self.landed:  # as above
            return True
        clock = loop.call_later(seconds, _tell, over, False)  # noqa: FBT003 - it did not, in time
        try:
            return await over
        finally:
            clock.cancel()


def _has_landed(over: asyncio.Future[bool], thread: int) -> None:
    """Whoever waits on a loop of that thread knows."""
    try:
        if threading.get_ident() == thread:
            _tell(over, True)  # noqa: FBT003 - it did
        else:
            over.get_loop().call_soon_threadsafe(_tell, over, True)  # noqa: FBT003 - the same
    except RuntimeError:  # that loop is closed: nobody waits there any more
        return


def _tell(over: asyncio.Future[bool], landed: bool) -> None:  # noqa: FBT001 - what the future holds
    if not over.done():
        over.set_result(landed)


class Flights:
    """The flights of one store in this process."""

    def __init__(self) -> None:
        """No flights yet."""
        self._flights: dict[Identity, Flight] = {}
        renew_after_fork(self)

    def join(self, identity: Identity) -> tuple[Flight, bool]:
        """The flight of this identity, and whether the caller leads it."""
        mine = Flight(identity, threading.get_ident())
        flight = self._flights.setdefault(identity, mine)  # one step: threads need no lock
        return flight, flight is mine

    def apart(self, identity: Identity) -> Flight:
        """A flight that nobody can join."""
        return Flight(identity, threading.get_ident())

    def land(self, flight: Flight, left: Left = None) -> None:
        """The flight is over; those who waited judge by the record that it left, if any.

        What it left is only worked out when somebody asks.
        """
        if flight.landed:
            return
        flight.left = left
        flight.landed = True
        if self._flights.get(flight.identity) is flight:  # else: of the parent of a fork
            del self._flights[flight.identity]
        for wake in flight.wake:
            wake()

    def after_fork(self) -> None:
        """The parent's flights land in the parent."""
        self._flights = {}
