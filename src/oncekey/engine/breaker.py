"""The circuit breaker: refuse claims at once while the store cannot be reached.

It opens after `OPENS_AFTER` claims in a row that did not reach the store. An error that the store
itself returned does not count. While the breaker is open, the keeper asks the store every
`KNOCK_EVERY` seconds, and the first answer closes it. Settle, renew and release do not check the
breaker: they end an attempt, so they are sent whenever they can be.
"""

from __future__ import annotations

from typing import Final

from oncekey.compat import renew_after_fork
from oncekey.engine.keeper import Chore, keeper
from oncekey.errors import StoreError
from oncekey.observe import Event, Observers
from oncekey.stores.base import Store

OPENS_AFTER: Final = 3
KNOCK_EVERY: Final = 0.5
_NOBODY: Final = "oncekey.knock"
_UNHEARD: Final = Observers(())


class Breaker:
    """The circuit breaker of one store."""

    def __init__(self, store: Store, observers: Observers = _UNHEARD) -> None:
        """Start closed: every claim goes to the store."""
        self._store = store
        self._observers = observers
        self.misses = 0
        """The number of claims in a row that did not reach the store."""
        self.open = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start closed in a forked child: the chore that would close it runs in the parent only."""
        self.misses = 0
        self.open = False

    def check(self) -> None:
        """Raise StoreError if the breaker is open."""
        if self.open:
            msg = "the store was out of reach a moment ago and has not answered since"
            raise StoreError(msg, happened=False, unreachable=True)

    def answered(self) -> None:
        """Close the breaker: the store was reached."""
        self.misses = 0
        if self.open:
            self.open = False
            self._observers.hand(Event(name="breaker_closed"))

    def missed(self, error: StoreError) -> None:
        """Count a failed claim that did not reach the store, and open after `OPENS_AFTER`."""
        if not error.unreachable or self.open:
            return
        self.misses += 1
        if self.misses >= OPENS_AFTER:
            # First of all: an interruption in between must not leave it open for ever.
            keeper.take_up(_Knock(self, self._store), KNOCK_EVERY)
            self.open = True
            self._observers.hand(Event(name="breaker_opened", detail=str(error)))


class _Knock(Chore):
    """The chore that reads a record that does not exist until the store answers."""

    __slots__ = ("_breaker", "_store")

    def __init__(self, breaker: Breaker, store: Store) -> None:
        super().__init__()
        self._breaker = breaker
        self._store = store

    @property
    def lane(self) -> object:
        return self._store

    def do(self) -> float | None:
        if not self._breaker.open:
            return None
        try:
            self._store.get(None, _NOBODY)
        except StoreError:
            return KNOCK_EVERY
        except Exception:  # noqa: BLE001 - an answer all the same: the store was reached
            self._breaker.answered()
            return None
        self._breaker.answered()
        return None
