"""Single flight: of all callers in this process with one key, one asks the store.

The first caller leads the flight. The others follow: they wait until it lands, and are answered
from the record that it left, without asking the store. If it left none, one of them leads next.

What is known of a flight gets old: its run may hang until the lease ends, or the record may be
taken over or forgotten elsewhere. Then one of the callers that follow replaces the flight and asks
the store, while the others follow the new flight. If the store says that the run still goes on,
the first flight is put back. The duplicates of a call that runs in this process thus ask the store
at most once a second.
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
"""The record that a flight left, or a function that returns it."""

FRESH_FOR: Final = 1.0
"""The most seconds for which an answer of the store is used to refuse duplicates."""


class Flight(Struct, eq=False):
    """One caller that asks the store about a key, and the callers that wait for it."""

    identity: Identity
    thread: int
    """The id of the thread of the caller that leads it."""
    known_at: float
    """The monotonic time at which it began, or at which the store last answered about it."""
    lease_end: float | None = inf
    """The monotonic time at which the lease of its run ends; infinite before it is granted.

    None if it follows from the last answer. Only the callers that follow need to know it.
    """
    replaced: Flight | None = None
    """The flight that this one replaced. It is put back if the store says that its run goes on."""
    ticket: Any = None
    """The ticket of the run that it led to."""
    answer: Answer | None = None
    """The last answer of the store."""
    taken_at: float = 0.0
    """The monotonic time of the last answer."""
    landed: bool = False
    left: Left = None
    wake: list[Callable[[], object]] = []
    """The functions to call when it lands. msgspec gives each flight a list of its own."""

    def heard(self, answer: Answer, at: float) -> None:
        """Note the answer of the store."""
        self.answer = answer
        self.taken_at = self.known_at = at
        self.lease_end = None

    def renewed(self, lease: float) -> None:
        """Note that the lease of the run was renewed just now, for `lease` seconds."""
        self.known_at = monotonic()
        self.lease_end = self.known_at + lease

    def unclaimed(self, answer: Answer, at: float) -> None:
        """Note that the run began without the store, which has nothing newer to say meanwhile."""
        self.answer, self.taken_at = answer, at
        self.known_at = inf

    def good_until(self, fresh_for: float) -> float:
        """Return the monotonic time until which what is known of the flight may be used."""
        lease_end, answer = self.lease_end, self.answer
        if lease_end is None:
            assert answer is not None  # noqa: S101 - `heard` sets both
            lease_end = self.taken_at + (answer.record.lease_end - answer.now) / 1_000_000
        return min(lease_end, self.known_at + min(fresh_for, FRESH_FOR))

    def outcome(self) -> Answer | None:
        """Return the record that the flight left with the store's present time, or None.

        The time is estimated: the time of the last answer, plus what has passed since.
        """
        left = self.left
        record = left() if callable(left) else left
        if record is None or self.answer is None:
            return None
        return Answer(record, self.answer.now + round((monotonic() - self.taken_at) * 1_000_000))

    def wait(self, seconds: float) -> bool | None:
        """Block until it has landed, for at most `seconds`. Return whether it has.

        Return None if this thread leads it, for a coroutine: it cannot land while this blocks.
        """
        if self.thread == threading.get_ident():
            return self.landed or None
        event = threading.Event()
        self.wake.append(event.set)
        return self.landed or event.wait(seconds)  # `land` sets landed, then wakes

    async def wait_async(self, seconds: float) -> bool:
        """Wait until it has landed, for at most `seconds`. Return whether it has."""
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
    """Resolve the future of a waiting coroutine, on the loop of that thread."""
    try:
        if threading.get_ident() == thread:
            _tell(over, True)  # noqa: FBT003 - it did
        else:
            over.get_loop().call_soon_threadsafe(_tell, over, True)  # noqa: FBT003 - the same
    except RuntimeError:  # that loop is closed: nothing waits there any more
        return


def _tell(over: asyncio.Future[bool], landed: bool) -> None:  # noqa: FBT001 - what the future holds
    if not over.done():
        over.set_result(landed)


class Flights:
    """The flights of one store in this process."""

    def __init__(self) -> None:
        """Start without flights."""
        self._flights: dict[Identity, Flight] = {}
        self._hidden: dict[Identity, list[Flight]] = {}
        """Those whose place a run took: calls that fail open may run beside each other."""
        self._lock = threading.Lock()
        self.granted: dict[Any, float] = {}
        """The tickets of runs that have not begun yet, with the time at which they were granted."""
        self.watched = False
        """Whether the keeper has a chore that releases those that never begin."""
        renew_after_fork(self)

    def join(self, identity: Identity, now: float) -> tuple[Flight, bool]:
        """Return the flight of this identity, and whether the caller leads it, from `now` on."""
        mine = Flight(identity, threading.get_ident(), now)
        flight = self._flights.setdefault(identity, mine)  # atomic: needs no lock
        if flight is not mine and flight.landed:  # a signal may have cut off its landing
            with self._lock:
                if self._flights.get(identity) is flight:
                    del self._flights[identity]
                flight = self._flights.setdefault(identity, mine)
        return flight, flight is mine

    def apart(self, identity: Identity) -> Flight:
        """Return a flight that no other caller can join."""
        return Flight(identity, threading.get_ident(), monotonic())

    def adopt(self, flight: Flight) -> None:
        """Let others join the flight, since it has led to a run.

        It may be apart, or another caller has replaced or superseded it while it asked the store.
        That caller may still be granted a run, and has its place back when this one lands.
        """
        if self._flights.get(flight.identity) is not flight:
            with self._lock:
                other, going_on = self._flights.get(flight.identity), []
                while other is not None and other is not flight:
                    if not other.landed:
                        going_on.append(other)
                    other = other.replaced
                if going_on:
                    self._hidden.setdefault(flight.identity, []).extend(reversed(going_on))
                flight.landed, flight.left = False, None
                self._flights[flight.identity] = flight

    def beside(self, flight: Flight) -> Flight | None:
        """Return the other flight under the same identity that has led to a run, or still may.

        One that replaced this flight, and still asks the store, does not count: it gives way to
        the run of this one.
        """
        asks: Flight | None = None
        other = self._flights.get(flight.identity)
        while other is not None:
            if other is flight:
                asks = None
            elif not other.landed:
                if other.ticket is not None:
                    return other
                asks = asks or other
            other = other.replaced
        hidden = self._hidden.get(flight.identity, ())
        return next((one for one in hidden if one is not flight and not one.landed), asks)

    def replace(self, flight: Flight, known_at: float) -> Flight | None:
        """Replace the flight. Return the new one, which the caller leads.

        Return None if another caller has replaced it, or the store has answered about it since
        `known_at`.
        """
        with self._lock:
            if self._flights.get(flight.identity) is not flight or flight.known_at != known_at:
                return None
            mine = Flight(flight.identity, threading.get_ident(), monotonic(), replaced=flight)
            self._flights[flight.identity] = mine
            return mine

    def put_back(self, flight: Flight) -> Flight | None:
        """Land this flight and put the one that it replaced back in its place. Return that one.

        Return None if there is none, or if it has landed meanwhile. A flight that was itself put
        back meanwhile stands for the one that it had replaced.
        """
        before = flight.replaced
        while before is not None and before.landed:
            before = before.replaced
        flight.replaced = before
        if before is None:
            return None
        with self._lock:
            if self._flights.get(flight.identity) is flight:
                self._flights[flight.identity] = before
        self.land(flight)
        return before

    def give_up(self, flight: Flight) -> None:
        """Land the flight without a record, and put the one that it replaced back."""
        if self.put_back(flight) is None:
            self.land(flight)

    def supersede(self, flight: Flight, owner: str) -> None:
        """Land the flight that this one replaced: its run does not own the record any more.

        `owner` is the nonce that the record has now.
        """
        before, flight.replaced = flight.replaced, None
        self._over(before, owner)

    def forget(self, identity: Identity) -> None:
        """Land the flights of this identity: its record was forgotten or resolved here."""
        for hidden in self._hidden.pop(identity, ()):
            self._over(hidden, "")
        self._over(self._flights.get(identity), "")

    def _over(self, flight: Flight | None, owner: str) -> None:
        while flight is not None:
            if flight.ticket is not None and flight.ticket.record.nonce != owner:
                flight.ticket.lost = True
            self.land(flight)
            flight = flight.replaced

    def land(self, flight: Flight, left: Left = None) -> None:
        """End the flight with the record that it left, if any, and wake the waiting callers.

        If `left` is a function, it is called only when a waiting caller needs the record.
        """
        if flight.landed:
            return
        flight.left = left
        flight.landed = True
        if self._flights.get(flight.identity) is flight:  # not so in a forked child
            del self._flights[flight.identity]
            if self._hidden:
                self._uncover(flight.identity)
        for wake in flight.wake:
            wake()

    def _uncover(self, identity: Identity) -> None:
        """Give the place back to a flight that a run has hidden, if it goes on."""
        with self._lock:
            going_on = [one for one in self._hidden.pop(identity, ()) if not one.landed]
            if going_on and self._flights.setdefault(identity, going_on[-1]) is going_on[-1]:
                going_on.pop()
            if going_on:
                self._hidden[identity] = going_on

    def after_fork(self) -> None:
        """Start without flights in a forked child: those of the parent land there."""
        self._flights = {}
        self._hidden = {}
        self._lock = threading.Lock()
        self.granted = {}
        self.watched = False
