"""The ticket that a caller holds from entering a call to its end, and the nonces of claims."""

from __future__ import annotations

from os import urandom
from time import monotonic, time_ns
from typing import Final

from msgspec import Struct

from oncekey.compat import Runner, renew_after_fork
from oncekey.core import machine
from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.core.requests import Release, Settle
from oncekey.engine.keeper import Chore
from oncekey.engine.single_flight import Flight

_LENGTH: Final = 16
_MANY: Final = 128


class Nonces:
    """A stock of nonces: `_MANY` at a time come from the system, which saves system calls."""

    def __init__(self) -> None:
        """Start with an empty stock."""
        self._stock: list[str] = []
        renew_after_fork(self)

    def take(self) -> str:
        """Return a nonce that was not taken before."""
        try:
            return self._stock.pop()  # atomic: needs no lock
        except IndexError:
            digits = urandom(_LENGTH // 2 * _MANY).hex()
            fresh = [digits[at : at + _LENGTH] for at in range(0, len(digits), _LENGTH)]
            nonce = fresh.pop()
            self._stock.extend(fresh)
            return nonce

    def after_fork(self) -> None:
        """Start with an empty stock in a forked child: the parent goes on to use the old one."""
        self._stock = []


new_nonce: Final = Nonces().take
"""Return a random name for one claim, unique and not to be guessed."""


class Ticket(Struct, eq=False):
    """The right to run a call, or the record that answers it instead.

    `protected` is False if the store does not know of this run: the store is down and the call
    runs all the same, or protection is switched off. The record then exists in this process only.
    """

    call: Call
    record: Record
    heard: int
    """The store's time when it answered."""
    taken_at: float
    """The monotonic time of this process at that moment."""
    flight: Flight | None = None
    duplicate: bool = False
    protected: bool = True
    renewal: Chore | None = None
    lost: bool = False
    watched: bool = False
    """Whether the keeper releases the claim if its code does not begin to run."""
    begun: bool = False
    runner: Runner | None = None
    """The frame or the task that runs the code, if it is known."""
    resent: bool = True
    """Whether the claim may have been sent more than once, so that a copy of it may come late."""

    def now(self) -> int:
        """Return an estimate of the store's time, without asking it."""
        return self.heard + round((monotonic() - self.taken_at) * 1_000_000)

    def giving_back(self) -> Release:
        """Return the request that gives back a claim that was not used."""
        return self.call.release(self.record, unused=True, brief=not self.resent)

    def after_settle(self, ask: Settle) -> Record:
        """Return the record as the store has it after it has granted `ask`."""
        record, _ = machine.settle(self.record, ask, self.now())
        return record or self.record

    def after_release(self, ask: Release) -> Record:
        """Return the record as the store has it after it has granted `ask`."""
        record, _ = machine.release(self.record, ask, self.now())
        return record or self.record


def unprotected(call: Call, flight: Flight | None = None, nonce: str = "") -> Ticket:
    """Return a ticket for a run that the store does not know of.

    Its record exists in this process only, with the time of this process.
    """
    _, answer = machine.claim(None, call.claim(nonce or new_nonce()), time_ns() // 1000)
    return Ticket(call, answer.record, answer.now, monotonic(), flight, protected=False)
