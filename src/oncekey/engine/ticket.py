"""The ticket: what a caller holds between entering a call and leaving it."""

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
    """Nonces in stock: the system is asked for many at once."""

    def __init__(self) -> None:
        """Nothing in stock yet."""
        self._stock: list[str] = []
        renew_after_fork(self)

    def take(self) -> str:
        """One that nobody has taken."""
        try:
            return self._stock.pop()  # one step: threads need no lock
        except IndexError:
            digits = urandom(_LENGTH // 2 * _MANY).hex()
            fresh = [digits[at : at + _LENGTH] for at in range(0, len(digits), _LENGTH)]
            nonce = fresh.pop()
            self._stock.extend(fresh)
            return nonce

    def after_fork(self) -> None:
        """The parent goes on with what it has: no nonce may be used in both."""
        self._stock = []


new_nonce: Final = Nonces().take
"""A name for one claim that nobody else chooses, and nobody can guess."""


class Ticket(Struct, eq=False):
    """The right to run a call, or the record that answers it instead.

    `protected` is False where no store knows of this run: the store is down and the call runs
    all the same, or protection is switched off. The record is then one of this process alone.
    """

    call: Call
    record: Record
    heard: int
    """The store's time when it answered."""
    taken_at: float
    """The time of this process at that moment."""
    flight: Flight | None = None
    duplicate: bool = False
    protected: bool = True
    renewal: Chore | None = None
    lost: bool = False
    watched: bool = False
    """Whether it is given back if its code does not begin to run."""
    begun: bool = False
    runner: Runner | None = None
    """The frame or the task that runs it, where that can be told."""

    def now(self) -> int:
        """The store's time, as far as it can be told without asking."""
        return self.heard + round((monotonic() - self.taken_at) * 1_000_000)

    def after_settle(self, ask: Settle) -> Record:
        """The record as the store has it after it said yes to `ask`."""
        record, _ = machine.settle(self.record, ask, self.now())
        return record or self.record

    def after_release(self, ask: Release) -> Record:
        """The record as the store has it after it said yes to `ask`."""
        record, _ = machine.release(self.record, ask, self.now())
        return record or self.record


def unprotected(call: Call, flight: Flight | None = None, nonce: str = "") -> Ticket:
    """A ticket for a run that no store knows of, with a record of this process's own time."""
    _, answer = machine.claim(None, call.claim(nonce or new_nonce()), time_ns() // 1000)
    return Ticket(call, answer.record, answer.now, monotonic(), flight, protected=False)
