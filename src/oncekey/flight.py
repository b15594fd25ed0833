"""Single flight: of all callers in this process with one key, one talks to the store.

The first caller leads. The others wait for it to land and are then judged by the record that it
left, without asking the store; if it left none, one of them leads next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic

from msgspec import Struct

from oncekey.call import Identity
from oncekey.fork import renew_after_fork
from oncekey.record import Record
from oncekey.verbs import Answer

Left = Record | Callable[[], Record | None] | None
"""The record that a flight left, or how to work it out."""


class Flight(Struct, eq=False):
    """One caller's way to the store and back, and who waits for it."""

    identity: Identity
    thread: int
    """Of the caller who leads it."""
    _lock: threading.Lock
    """The one of all flights to the store."""
    answer: Answer | None = None
    """What the store said last."""
    taken_at: float = 0.0
    """When it said so, by the clock of this process."""
    landed: bool = False
    left: Left = None
    _wake: list[Callable[[], None]] | None = None

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
        return self._call_when_landed(event.set) or event.wait(seconds)

    async def wait_async(self, seconds: float) -> bool:
        """Wait until it landed, at most so long; whether it did."""
        loop, here = asyncio.get_running_loop(), threading.get_ident()
        landed: asyncio.Future[bool] = loop.create_future()

        def tell(it: bool) -> None:  # noqa: FBT001 - what the future holds
            if not landed.done():
                landed.set_result(it)

        def wake() -> None:
            try:
                if threading.get_ident() == here:
                    tell(True)  # noqa: FBT003 - it landed
                else:
                    loop.call_soon_threadsafe(tell, True)  # noqa: FBT003 - the same
            except RuntimeError:  # that loop is closed: nobody waits there any more
                return

        if self._call_when_landed(wake):
            return True
        clock = loop.call_later(seconds, tell, False)  # noqa: FBT003 - it did not, in time
        try:
            return await landed
        finally:
            clock.cancel()

    def _call_when_landed(self, wake: Callable[[], None]) -> bool:
        """Whether it has landed; if not, `wake` is called when it does."""
        with self._lock:
            self._wake = self._wake or []
        self._wake.append(wake)
        return self.landed  # looked at last: `land` says so first, and then looks who waits


class Flights:
    """The flights of one store in this process."""

    def __init__(self) -> None:
        """No flights yet."""
        self._lock = threading.Lock()
        self._flights: dict[Identity, Flight] = {}
        renew_after_fork(self)

    def join(self, identity: Identity) -> tuple[Flight, bool]:
        """The flight of this identity, and whether the caller leads it."""
        mine = Flight(identity, threading.get_ident(), self._lock)
        flight = self._flights.setdefault(identity, mine)  # atomic, and so without the lock
        return flight, flight is mine

    def apart(self, identity: Identity) -> Flight:
        """A flight that nobody can join."""
        return Flight(identity, threading.get_ident(), self._lock)

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
        for wake in flight._wake or ():  # noqa: SLF001 - the other half of the same pair
            wake()

    def after_fork(self) -> None:
        """The parent's flights land in the parent."""
        self._lock = threading.Lock()
        self._flights = {}
