"""The store of simulated processes: in memory, with a point before and after each request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, cast

from oncekey.core.call import Identity
from oncekey.core.codec import UnreadableBytesError
from oncekey.core.record import read_notes
from oncekey.core.requests import Note, Verdict
from oncekey.engine.single_flight import Flight, Flights
from oncekey.errors import StoreError
from oncekey.stores.adapters import Inline
from oncekey.stores.base import VERBS, Store
from oncekey.stores.memory import MemoryStore
from oncekey.testing.clock import FakeClock
from oncekey.testing.processes import GoneError, Process, here

_LOOKING: Final = ("get", "scan", "purge")
"""Requests that change nothing that a caller relies on. They have no points."""


class ChaosStore:
    """One store for all simulated processes. It knows which of them is asking.

    A request of an attempt carries its nonce, and so belongs to the process that chose it, even if
    the library's own thread sends it. Requests of a dead process do not arrive.
    """

    remote = False

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.empty()

    def empty(self) -> None:
        """Remove all records."""
        self.records = MemoryStore(clock=self.clock)
        self._owners: dict[str, Process] = {}
        self._noted: dict[str, set[str]] = {}

    def as_async(self) -> Inline:
        """Return the same store for coroutines."""
        return Inline(cast("Store", self))

    def close(self) -> None:
        """Do nothing; there is nothing to close."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """Return the answer of the store, unless the process crashes or the reply is lost."""
        real: Callable[..., Any] = getattr(self.records, verb)
        request = arguments[0] if arguments else None
        nonce = getattr(request, "nonce", None)
        process = here.get() if nonce is None else self._owners.setdefault(nonce, here.get())
        left_behind = not process.alive and process is not here.get()  # asked as Python ends
        if left_behind or threading.current_thread().name.startswith("oncekey-"):
            return self._behind(process, verb, real, arguments)
        if verb in _LOOKING:
            process.check()
            return real(*arguments)
        name = f"note of {self._what(request)}" if isinstance(request, Note) else verb
        process.passing(f"before {name}")
        answer = real(*arguments)
        if process.passing(f"after {name}"):
            msg = f"the reply of {name} was lost"
            raise StoreError(msg, happened=None)
        return answer

    def _what(self, ask: Note) -> str:
        """Return the step or fact that is noted, for the name of the point."""
        try:
            notes = read_notes(ask.noted)
        except UnreadableBytesError:
            return "something"
        named = {f"fact {one!r}" for one in notes.facts} | {f"step {one!r}" for one in notes.steps}
        new, self._noted[ask.nonce] = named - self._noted.get(ask.nonce, set()), named
        return ", ".join(sorted(new or named)) or "nothing"

    @staticmethod
    def _behind(
        process: Process, verb: str, real: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> Any:
        """Answer a request of the keeper. It is no point, and ends with its process."""
        if process.alive:
            return real(*arguments)
        if verb == "claim":
            msg = "the process is gone"
            raise GoneError(msg)
        return Verdict.LOST


def _verb(name: str) -> Callable[..., Any]:
    def asked(self: ChaosStore, *arguments: Any) -> Any:
        return self.ask(name, *arguments)

    asked.__name__ = name
    return asked


for _name in VERBS:
    setattr(ChaosStore, _name, _verb(_name))


class FlightsApart(Flights):
    """Single flight inside each simulated process, and not between them."""

    def join(self, identity: Identity, now: float) -> tuple[Flight, bool]:
        """Return the flight of this identity in this process."""
        return super().join(cast("Identity", (here.get().number, *identity)), now)
