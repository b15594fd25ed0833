"""The store of pretended processes: in memory, with a point before and after everything it does."""

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
"""Verbs that change nothing that a caller relies on: no point of their own."""


class ChaosStore:
    """One store for all pretended processes; it knows which of them is asking.

    A request of an attempt carries its nonce, and so belongs to the process that chose it, even
    when the library's own thread sends it. Of a dead process nothing arrives.
    """

    remote = False

    def __init__(self, clock: FakeClock) -> None:
        """Without records."""
        self.clock = clock
        self.empty()

    def empty(self) -> None:
        """Nothing was ever asked."""
        self.records = MemoryStore(clock=self.clock)
        self._owners: dict[str, Process] = {}
        self._noted: dict[str, set[str]] = {}

    def as_async(self) -> Inline:
        """The same store for coroutines."""
        return Inline(cast("Store", self))

    def close(self) -> None:
        """Nothing to close."""

    def ask(self, verb: str, *arguments: Any) -> Any:
        """What the store answers, if the asker lives to hear it."""
        real: Callable[..., Any] = getattr(self.records, verb)
        request = arguments[0] if arguments else None
        nonce = getattr(request, "nonce", None)
        process = here.get() if nonce is None else self._owners.setdefault(nonce, here.get())
        if threading.current_thread().name.startswith("oncekey-"):
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
        """The step or fact that is noted, for people."""
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
        """What the keeper does is no point of anybody's code, and ends with its process."""
        if process.alive:
            return real(*arguments)
        if verb == "renew":
            return Verdict.LOST
        msg = "the process is gone"
        raise GoneError(msg)


def _verb(name: str) -> Callable[..., Any]:
    def asked(self: ChaosStore, *arguments: Any) -> Any:
        return self.ask(name, *arguments)

    asked.__name__ = name
    return asked


for _name in VERBS:
    setattr(ChaosStore, _name, _verb(_name))


class FlightsApart(Flights):
    """Single flight inside each pretended process, and not between them."""

    def join(self, identity: Identity) -> tuple[Flight, bool]:
        """The flight of this identity in this process."""
        return super().join(cast("Identity", (here.get().number, *identity)))
