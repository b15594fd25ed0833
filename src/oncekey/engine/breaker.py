"""The breaker: while a store cannot be reached, claims are refused at once instead of waiting.

It opens after a few claims in a row that did not reach the store; refusals of the store itself do
not count. While it is open the keeper knocks, and the first answer closes it. What ends an attempt
(settle, renew, release) never asks it: that must get through whenever it can.
"""

from __future__ import annotations

from typing import Final

from oncekey.compat import renew_after_fork
from oncekey.engine.keeper import Chore, keeper
from oncekey.errors import OncekeyError, StoreError
from oncekey.observe import Event, Observers
from oncekey.stores.base import Store

OPENS_AFTER: Final = 3
KNOCK_EVERY: Final = 0.5
_NOBODY: Final = "oncekey.knock"
_UNHEARD: Final = Observers(())


class Breaker:
    """Whether it is worth asking the store."""

    def __init__(self, store: Store, observers: Observers = _UNHEARD) -> None:
        """Closed: every claim asks."""
        self._store = store
        self._observers = observers
        self.misses = 0
        """How many claims in a row did not reach the store."""
        self.open = False
        renew_after_fork(self)

    def after_fork(self) -> None:
        """A child asks for itself: what the parent knocks with stays with the parent."""
        self.misses = 0
        self.open = False

    def check(self) -> None:
        """Nothing, unless the store is known to be out of reach."""
        if self.open:
            msg = "the store was out of reach a moment ago and has not answered since"
            raise StoreError(msg, happened=False, unreachable=True)

    def answered(self) -> None:
        """The store was reached."""
        self.misses = 0
        if self.open:
            self.open = False
            self._observers.hand(Event(name="breaker_closed"))

    def missed(self, error: StoreError) -> None:
        """A claim failed; if it did not reach the store, the breaker may open."""
        if not error.unreachable or self.open:
            return
        self.misses += 1
        if self.misses >= OPENS_AFTER:
            self.open = True
            self._observers.hand(Event(name="breaker_opened", detail=str(error)))
            keeper.take_up(_Knock(self, self._store), KNOCK_EVERY)


class _Knock(Chore):
    """Asks the store for nothing in particular until it answers."""

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
        except OncekeyError:  # it answers, if only to say what is wrong with it
            self._breaker.answered()
            return None
        self._breaker.answered()
        return None
