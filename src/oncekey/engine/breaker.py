"""The circuit breaker: refuse claims at once while the store is in trouble.

It opens after `OPENS_AFTER` claims in a row that did not reach the store. An error that the store
itself returned does not count. The keeper then asks the store every `KNOCK_EVERY` seconds, and the
first answer closes the breaker.

It also opens while the store records nothing. Whatever runs then could not be recorded, and would
run again once its lease is over. If a settle fails, the keeper claims and settles a record of its
own. If that works, only the one settle has a problem, and the breaker stays closed. Otherwise it is
open until it works.

Settle, renew and release do not check the breaker: they end an attempt, so they are sent whenever
they can be.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from oncekey.compat import renew_after_fork
from oncekey.core.machine import MINUTE
from oncekey.core.requests import Claim, Forget, Settle
from oncekey.engine.keeper import Chore, keeper
from oncekey.engine.ticket import new_nonce
from oncekey.errors import OncekeyError, StoreError
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
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self.misses = 0
        """The number of claims in a row that did not reach the store."""
        self.open = False
        self._refusal = ""
        self._trial: Trial | None = None

    def after_fork(self) -> None:
        """Start closed in a forked child: the chore that would close it runs in the parent only."""
        self._reset()

    def check(self) -> None:
        """Raise StoreError if the breaker is open."""
        if self._refusal:
            msg = f"nothing new is begun while the store records nothing: {self._refusal}"
            raise StoreError(msg, happened=False)
        if self.open:
            msg = "the store was out of reach a moment ago and has not answered since"
            raise StoreError(msg, happened=False, unreachable=True)

    def answered(self) -> None:
        """Forget the claims that did not reach the store: now it was reached."""
        self.misses = 0
        self._decide("")

    def missed(self, error: StoreError) -> None:
        """Count a failed claim that did not reach the store, and open after `OPENS_AFTER`."""
        if not error.unreachable or self.open:
            return
        self.misses += 1
        if self.misses >= OPENS_AFTER:
            # First of all: an interruption in between must not leave it open for ever.
            keeper.take_up(_Knock(self, self._store), KNOCK_EVERY)
            self._decide(str(error))

    def not_recorded(self) -> None:
        """Let the keeper find out whether the store records anything: a settle has failed."""
        if self._trial is None:
            self._trial = Trial(self, self._store)
            keeper.take_up(self._trial, 0.0)

    def refuses(self, refusal: str) -> None:
        """Open: the trial failed, and the store records nothing."""
        self._refusal = refusal
        self._decide(refusal)

    def records(self) -> None:
        """Close: the trial worked, and the store records what it is told."""
        self._refusal, self._trial = "", None
        self._decide("")

    def _decide(self, detail: str) -> None:
        """Open or close. Report a change."""
        before = self.open
        self.open = bool(self._refusal) or self.misses >= OPENS_AFTER
        if self.open and not before:
            self._observers.hand(Event(name="breaker_opened", detail=detail))
        elif before and not self.open:
            self._observers.hand(Event(name="breaker_closed"))


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
        if self._breaker.misses < OPENS_AFTER:
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


class Trial(Chore):
    """The chore that claims and settles a record of its own until that works, and forgets it."""

    __slots__ = ("_breaker", "_nonce", "_store")

    def __init__(self, breaker: Breaker, store: Store) -> None:
        """Use a key that no other process uses, and the same claim every time."""
        super().__init__()
        self._breaker = breaker
        self._store = store
        self._nonce = new_nonce()

    @property
    def lane(self) -> object:
        """The store."""
        return self._store

    def do(self) -> float | None:
        """Try once. Return the seconds until the next try, or None when it worked."""
        try:
            self._try()
        except Exception as error:  # noqa: BLE001 - whatever it is, the store records nothing
            self._breaker.refuses(str(error) or type(error).__name__)
            return KNOCK_EVERY
        self._breaker.records()
        return None

    def _try(self) -> None:
        key, nonce = f"oncekey.trial:{self._nonce}", self._nonce
        claim = Claim(None, key, nonce=nonce, fingerprint=None, lease=MINUTE, ttl=MINUTE)
        record = self._store.claim(claim).record
        settle = Settle(
            None,
            key,
            token=record.token,
            nonce=nonce,
            status="completed",
            result=None,
            error=None,
            ttl=MINUTE,
        )
        self._store.settle(settle)
        with suppress(OncekeyError):  # it expires by itself
            self._store.forget(Forget(None, key, token=record.token, force=False))
