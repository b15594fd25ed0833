"""Single flight: of all callers in this process with one key, one talks to the store.

The first caller leads. The others wait for it to land and are then judged by the record that it
left, without asking the store; if it left none, one of them leads next.

What a flight knows gets old: its run may hang, and its lease end, or the record be taken over or
forgotten elsewhere. Then one of those who follow replaces it and asks the store, while the others
follow that one. If the store says that the run still goes on, the first flight is put back. So a
duplicate of a call that runs here costs at most one question a second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Final

from msgspec import Struct

from oncekey.compat import renew_after_fork, running_loop
from oncekey.core.call import Identity
from oncekey.core.record import Record
from oncekey.core.requests import Answer

Left = Record | Callable[[], Record | None] | None
"""The record that a flight left, or how to work it out."""

FRESH_FOR: Final = 1.0
"""How many seconds what the store said is good enough to refuse a duplicate, at most."""


class Flight(Struct, eq=False):
    """One caller's way to the store and back, and who waits for it."""

    identity: Identity
    thread: int
    """Of the caller who leads it."""
    known_at: float
    """When it began, or the store was last heard of it, by the clock of this process."""
    lease_end: float = inf
    """When the lease of its run ends, by the clock of this process; none before it is granted."""
    replaced: Flight | None = None
    """The flight that is put back if the store says that its run goes on."""
    ticket: Any = None
    """The ticket of the run that it led to."""
    answer: Answer | None = None
    """What the store said last."""
    taken_at: float = 0.0
    """When it said so, by the clock of this process."""
    landed: bool = False
    left: Left = None
    wake: list[Callable[[], object]] = []
    """What is called when it lands; a list of its own, which msgspec makes for each."""

    def heard(self, answer: Answer, at: float) -> None:
        """Take in what the store said about the record."""
        self.answer, self.taken_at = answer, at
        self.known_at = at
        self.lease_end = at + (answer.record.lease_end - answer.now) / 1_000_000

    def renewed(self, lease: float) -> None:
        """Take in that the lease of the run was renewed just now, for so many seconds."""
        self.known_at = monotonic()
        self.lease_end = self.known_at + lease

    def unclaimed(self, answer: Answer, at: float) -> None:
        """Take in that its run began without the store: until that is back nobody can tell more."""
        self.answer, self.taken_at = answer, at
        self.known_at = inf

    def good_until(self, fresh_for: float) -> float:
        """Return until when what is known of it may be relied on."""
        return min(self.lease_end, self.known_at + min(fresh_for, FRESH_FOR))

    def outcome(self) -> Answer | None:
        """The record that the flight left, and the store's time as far as it can be told."""
        left = self.left
        record = left() if callable(left) else left
        if record is None or self.answer is None:
            return None
        return Answer(record, self.answer.now + round((monotonic() - self.taken_at) * 1_000_000))

    def wait(self, seconds: float) -> bool | None:
        """Block until it landed, at most so long. Return whether it did.

        None: this very thread leads it, for a coroutine, and it cannot land while that blocks here.
        """
        if self.thread == threading.get_ident():
            return self.landed or None
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
        self._lock = threading.Lock()
        self.granted: dict[Any, float] = {}
        """The tickets whose runs have not begun yet, and since when."""
        self.watched = False
        """Whether somebody looks for those that never begin."""
        renew_after_fork(self)

    def join(self, identity: Identity) -> tuple[Flight, bool]:
        """The flight of this identity, and whether the caller leads it."""
        mine = Flight(identity, threading.get_ident(), monotonic())
        flight = self._flights.setdefault(identity, mine)  # one step: threads need no lock
        return flight, flight is mine

    def apart(self, identity: Identity) -> Flight:
        """A flight that nobody can join."""
        return Flight(identity, threading.get_ident(), monotonic())

    def replace(self, flight: Flight, known_at: float) -> Flight | None:
        """Return a flight that the caller leads in place of this one.

        None if somebody else leads one, or has heard of this one after `known_at`.
        """
        with self._lock:
            if self._flights.get(flight.identity) is not flight or flight.known_at != known_at:
                return None
            mine = Flight(flight.identity, threading.get_ident(), monotonic(), replaced=flight)
            self._flights[flight.identity] = mine
            return mine

    def put_back(self, flight: Flight) -> Flight | None:
        """Let those who follow this flight follow the one that it replaced; return that one.

        None where it has landed meanwhile.
        """
        before, flight.replaced = flight.replaced, None
        if before is None or before.landed:
            return None
        with self._lock:
            if self._flights.get(flight.identity) is flight:
                self._flights[flight.identity] = before
        self.land(flight)
        return before

    def give_up(self, flight: Flight) -> None:
        """Land the flight, whose leader could not find out anything; the one before goes on."""
        if self.put_back(flight) is None:
            self.land(flight)

    def supersede(self, flight: Flight, owner: str) -> None:
        """Land the flight that this one replaced: the record is not running for it any more.

        `owner` is the nonce that the record has now.
        """
        before, flight.replaced = flight.replaced, None
        self._over(before, owner)

    def forget(self, identity: Identity) -> None:
        """Land the flight of this identity: its record was forgotten or resolved here."""
        self._over(self._flights.get(identity), "")

    def _over(self, flight: Flight | None, owner: str) -> None:
        while flight is not None:
            if flight.ticket is not None and flight.ticket.record.nonce != owner:
                flight.ticket.lost = True
            self.land(flight)
            flight = flight.replaced

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
        self._lock = threading.Lock()
        self.granted = {}
        self.watched = False
