"""What the keeper does for calls: renew, settle later, give back, purge."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from weakref import ref

from msgspec.structs import replace

from oncekey.compat import has_left
from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Release, Settle, Verdict
from oncekey.engine.keeper import Chore
from oncekey.engine.single_flight import Flights
from oncekey.engine.ticket import Ticket
from oncekey.errors import OncekeyError, StoreError, UnreadableError
from oncekey.observe import Event, Observers
from oncekey.policy import microseconds
from oncekey.stores.base import Store

_log = logging.getLogger("oncekey")

RETRY: Final = 0.5
BEGIN_WITHIN: Final = 1.0
"""Seconds after which what was granted and not begun is given back."""
MOST_WAITING: Final = 64 * 1024 * 1024
"""How many bytes of results wait for a store that cannot be told; beyond, only that it is done."""
PURGE_EVERY: Final = 30.0
PURGE_BATCH: Final = 500
_PURGE_AGAIN: Final = 0.2


class Asking(Chore):
    """Something that a store is asked."""

    __slots__ = ("_store",)
    _store: Any

    @property
    def lane(self) -> object:
        """The store."""
        return self._store


class Renewal(Asking):
    """Moves the end of a lease while its code runs."""

    __slots__ = ("_failures", "_flights", "_observers", "_ticket", "_until")

    def __init__(
        self, store: Store, ticket: Ticket, observers: Observers, flights: Flights
    ) -> None:
        """Go on until the record has another owner, has ended, or `max_run` is over."""
        self.queue = None  # every attempt has a renewal: not even the base is called for it
        self._store = store
        self._ticket = ticket
        self._observers = observers
        self._flights = flights
        self._failures = 0
        longest = ticket.call.terms.max_run
        self._until = None if longest is None else ticket.taken_at + longest

    def do(self) -> float | None:
        """Renew once. Whatever refuses that, it is tried again: the lease is not lost yet.

        No lease lasts longer than `max_run`, so that whoever hangs loses it then. What was torn
        away from its code is not renewed any more, and is dealt with as after a crash.
        """
        ticket = self._ticket
        if has_left(ticket.runner):
            self._land()
            return None
        terms = ticket.call.terms
        ask = ticket.call.renew(ticket.record)
        if self._until is not None:
            left = self._until - monotonic()
            if left <= 0:
                return None
            ask = replace(ask, lease=min(ask.lease, microseconds(left)))
        try:
            verdict = self._store.renew(ask)
        except Exception as error:  # noqa: BLE001 - a refusal of any kind is no reason to stop
            if not self._failures and not isinstance(error, StoreError):
                _log.error("a lease cannot be renewed, which goes on being tried: %s", error)
            pause: float = RETRY * 2**self._failures
            self._failures = min(self._failures + 1, 16)
            self._observers.tell(
                "renewal_failed", ticket.call, ticket.record.attempt, detail=str(error)
            )
            return min(pause, terms.lease / 6_000_000, terms.heartbeat_every)
        self._failures = 0
        if verdict is Verdict.DONE:
            if ticket.flight is not None:
                ticket.flight.renewed(ask.lease / 1_000_000)
            return terms.heartbeat_every
        ticket.lost = verdict is Verdict.LOST
        self._land()
        return None

    def _land(self) -> None:
        """Let nobody here wait for the run; whoever comes next asks the store."""
        flight = self._ticket.flight
        if flight is not None:
            self._flights.land(flight)


class Unbegun(Chore):
    """Gives back what was granted to callers who were torn away before they began.

    An exception that a signal raises may come between any two lines of the library.
    """

    __slots__ = ("_flights", "_give_back")

    def __init__(self, flights: Flights, give_back: Callable[[Ticket, Release], None]) -> None:
        """Look once a second, for as long as there is something to look at."""
        super().__init__()
        self._flights = flights
        self._give_back = give_back

    def do(self) -> float | None:
        """Give back what is older than a second."""
        granted, now = self._flights.granted, monotonic()
        for ticket, since in list(granted.items()):
            if now - since >= BEGIN_WITHIN and granted.pop(ticket, None) is not None:
                self._give_back(ticket, ticket.call.release(ticket.record, unused=True))
        self._flights.watched = False
        if granted:
            self._flights.watched = True
            return BEGIN_WITHIN
        return None


class Insisting(Asking):
    """Something that must get through to the store: tried until the store answers."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        """Nothing was refused yet."""
        super().__init__()
        self._refused = False

    def do(self) -> float | None:
        """Try once; again after a while, whatever the trouble is, until the store answers."""
        try:
            self.insist()
        except StoreError:
            return RETRY
        except UnreadableError as error:  # asking again does not help
            _log.error("a record cannot be ended: %s", error)
        except Exception as error:  # noqa: BLE001 - a refusal of any kind is no reason to stop
            if not self._refused:
                self._refused = True
                _log.error("the store refuses to be told, which goes on being tried: %s", error)
            return RETRY
        return None

    def insist(self) -> None:
        """Ask the store, which may fail."""
        raise NotImplementedError

    @property
    def urgent(self) -> bool:
        """What happened must be recorded before the process ends, if that can be."""
        return True


class Unsettled(Insisting):
    """Goes on with a settle or a release that could not be made, until the store answers."""

    __slots__ = ("_ask",)

    def __init__(self, store: Store, ask: Settle | Release) -> None:
        """The request is the one that was sent already: repeating it is harmless."""
        super().__init__()
        self._store = store
        self._ask = ask

    def insist(self) -> None:
        """Ask once more."""
        if isinstance(self._ask, Settle):
            self._store.settle(self._ask)
        else:
            self._store.release(self._ask)


class Abandoned(Insisting):
    """Gives back a claim whose asker left before it heard the answer."""

    __slots__ = ("_call", "_nonce")

    def __init__(self, store: Store, call: Call, nonce: str) -> None:
        """The nonce tells which claim it was."""
        super().__init__()
        self._store = store
        self._call = call
        self._nonce = nonce

    def insist(self) -> None:
        """Ask again with the same nonce: if it was granted, it is granted again, and released."""
        answer = self._store.claim(self._call.claim(self._nonce))
        if type(answer) is Granted:
            self._store.release(self._call.release(answer.record, unused=True))


class LateClaim(Asking):
    """Claims for a run that began while the store was down, and renews its lease from then on."""

    __slots__ = ("_record", "_ticket")

    def __init__(self, store: Store, ticket: Ticket) -> None:
        """The claim has the nonce of the run, so that its end can prove that it is the same."""
        super().__init__()
        self._store = store
        self._ticket = ticket
        self._record: Record | None = None

    def do(self) -> float | None:
        """Claim, or renew; over when somebody else has the record."""
        call = self._ticket.call
        try:
            if self._record is None:
                answer = self._store.claim(call.claim(self._ticket.record.nonce))
                self._record = answer.record if type(answer) is Granted else None
                if self._record is None:
                    return None
                self._renewed()
                return call.terms.heartbeat_every
            verdict = self._store.renew(call.renew(self._record))
        except Exception:  # noqa: BLE001 - a refusal of any kind is no reason to stop
            return RETRY
        if verdict is not Verdict.DONE:
            return None
        self._renewed()
        return call.terms.heartbeat_every

    def _renewed(self) -> None:
        flight = self._ticket.flight
        if flight is not None:
            flight.renewed(self._ticket.call.terms.lease / 1_000_000)


class LateEnd(Insisting):
    """Records how a run ended that no store knew of when it began."""

    __slots__ = ("_ask", "_call", "_observers")

    def __init__(
        self, store: Store, call: Call, ask: Settle | Release, observers: Observers
    ) -> None:
        """The request, with the token that the run gave itself."""
        super().__init__()
        self._store = store
        self._call = call
        self._ask = ask
        self._observers = observers

    def insist(self) -> None:
        """Claim with the nonce of the run, and end it; where others ran it, their record stands."""
        ask = self._ask
        answer = self._store.claim(self._call.claim(ask.nonce))
        if type(answer) is not Granted:
            if answer.record.nonce != ask.nonce:  # else it is recorded, and the reply was lost
                detail = "it ran unprotected beside another attempt"
                self._observers.tell("lost", self._call, 1, detail=detail)
        elif isinstance(ask, Settle):
            self._store.settle(replace(ask, token=answer.record.token))
        else:
            self._store.release(replace(ask, token=answer.record.token))


class Purging(Asking):
    """Removes expired records in small batches, as long as somebody uses the store."""

    __slots__ = ("_observers",)
    _store: Callable[[], Store | None]

    def __init__(self, store: Store, observers: Observers) -> None:
        """The store is not kept alive for it."""
        super().__init__()
        try:
            self._store = ref(store)
        except TypeError:  # it has slots and no place for a weak reference
            self._store = lambda: store
        self._observers = observers

    @property
    def lane(self) -> object:
        """The store, as long as there is one."""
        return self._store()

    def do(self) -> float | None:
        """Purge one batch; the next follows soon when there is more."""
        store = self._store()
        if store is None:
            return None
        try:
            count = store.purge(0, PURGE_BATCH)
        except OncekeyError:  # calls will hear of it; purging can wait
            return PURGE_EVERY
        if count:
            self._observers.hand(Event(name="purged", count=count))
        return _PURGE_AGAIN if count == PURGE_BATCH else PURGE_EVERY
