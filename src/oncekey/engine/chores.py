"""What the keeper does for calls: renew, settle later, give back, purge."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from weakref import ref

from msgspec.structs import replace

from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Release, Settle, Verdict
from oncekey.engine.keeper import Chore
from oncekey.engine.ticket import Ticket
from oncekey.errors import OncekeyError, StoreError
from oncekey.observe import Event, Observers
from oncekey.policy import microseconds
from oncekey.stores.base import Store

RETRY: Final = 0.5
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

    __slots__ = ("_observers", "_ticket", "_until")

    def __init__(self, store: Store, ticket: Ticket, observers: Observers) -> None:
        """Goes on until the record has another owner, has ended, or `max_run` is over."""
        self.queue = None  # every attempt has a renewal: not even the base is called for it
        self._store = store
        self._ticket = ticket
        self._observers = observers
        longest = ticket.call.terms.max_run
        self._until = None if longest is None else ticket.taken_at + longest

    def do(self) -> float | None:
        """Renew once. A renewal that failed is tried again soon: the lease is not lost yet.

        No lease lasts longer than `max_run`, so that whoever hangs loses it then.
        """
        ticket = self._ticket
        ask = ticket.call.renew(ticket.record)
        if self._until is not None:
            left = self._until - monotonic()
            if left <= 0:
                return None
            ask = replace(ask, lease=min(ask.lease, microseconds(left)))
        try:
            verdict = self._store.renew(ask)
        except StoreError as error:
            self._observers.tell(
                "renewal_failed", ticket.call, ticket.record.attempt, detail=str(error)
            )
            return min(ticket.call.terms.heartbeat_every, RETRY)
        if verdict is Verdict.DONE:
            return ticket.call.terms.heartbeat_every
        ticket.lost = verdict is Verdict.LOST
        return None


class Insisting(Asking):
    """Something that must get through to the store: tried until the store answers."""

    __slots__ = ()

    def do(self) -> float | None:
        """Try once; again after a while as long as the store is in trouble."""
        try:
            self.insist()
        except StoreError:
            return RETRY
        except OncekeyError:  # unreadable, or misconfigured: asking again does not help
            return None
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
                return None if self._record is None else call.terms.heartbeat_every
            verdict = self._store.renew(call.renew(self._record))
        except StoreError:
            return RETRY
        return call.terms.heartbeat_every if verdict is Verdict.DONE else None


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
