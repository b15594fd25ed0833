"""The chores of the keeper: renew leases, repeat requests that failed, release claims, purge."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from weakref import ref

from msgspec.structs import replace

from oncekey.compat import has_left, renew_after_fork
from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.core.requests import Granted, Release, Settle, Verdict
from oncekey.engine.keeper import Chore
from oncekey.engine.single_flight import Flights
from oncekey.engine.ticket import Ticket
from oncekey.errors import (
    ConfigurationError,
    OncekeyError,
    StoreAccessError,
    StoreError,
    UnreadableError,
)
from oncekey.observe import Event, Observers
from oncekey.observe.logger import logger
from oncekey.policy import microseconds
from oncekey.stores.activity import Counts
from oncekey.stores.base import Store

RETRY: Final = 0.5
BEGIN_WITHIN: Final = 1.0
"""Seconds after which a claim that was granted is released if its code has not begun to run."""
PURGE_EVERY: Final = 30.0
PURGE_BATCH: Final = 500
_PURGE_AGAIN: Final = 0.2
COUNT_EVERY: Final = 10.0
_MOST_COUNTS: Final = 360
"""The number of counts that wait for a store: those of an hour."""
MOST_WAITING: Final = 64 * 2**20
"""The most bytes of results that wait in this process until they can be recorded."""


class Asking(Chore):
    """A chore that asks a store, and runs in the lane of that store."""

    __slots__ = ("_store",)
    _store: Any

    @property
    def lane(self) -> object:
        """The store."""
        return self._store


class Renewal(Asking):
    """The chore that renews the lease of an attempt while its code runs."""

    __slots__ = ("_failures", "_flights", "_observers", "_ticket")

    def __init__(
        self, store: Store, ticket: Ticket, observers: Observers, flights: Flights
    ) -> None:
        """Renew until the record has another owner or has ended, or until `max_run` is over."""
        self.queue = None  # instead of super().__init__(): every attempt makes one
        self._store = store
        self._ticket = ticket
        self._observers = observers
        self._flights = flights
        self._failures = 0

    def do(self) -> float | None:
        """Renew the lease once. Return the seconds until the next renewal, or None to stop.

        After an error the renewal is tried again, since the lease is not lost yet. A lease never
        lasts longer than `max_run`, so that code that hangs loses it then. If the code was left
        without an end (`has_left`), its lease is not renewed, and runs out as after a crash.
        """
        ticket = self._ticket
        if has_left(ticket.runner):
            self._land()
            return None
        terms = ticket.call.terms
        ask = ticket.call.renew(ticket.record)
        if terms.max_run is not None:
            left = ticket.taken_at + terms.max_run - monotonic()
            if left <= 0:
                return None
            ask = replace(ask, lease=min(ask.lease, microseconds(left)))
        try:
            verdict = self._store.renew(ask)
        except Exception as error:  # noqa: BLE001 - a refusal of any kind is no reason to stop
            if not self._failures and _must_be_mended(error):
                logger.error("a lease cannot be renewed, which goes on being tried: %s", error)
            pause: float = RETRY * 2**self._failures
            self._failures = min(self._failures + 1, 16)
            self._observers.tell(
                "renewal_failed", ticket.call, ticket.record.attempt, detail=str(error)
            )
            return min(pause, terms.lease / 6_000_000, terms.heartbeat_every)
        self._failures = 0
        if verdict is Verdict.DONE:
            flight = ticket.flight  # the call may end meanwhile
            if flight is not None:
                flight.renewed(ask.lease / 1_000_000)
            return terms.heartbeat_every
        ticket.lost = verdict is Verdict.LOST
        self._land()
        return None

    def _land(self) -> None:
        """Land the flight, so that callers in this process ask the store instead of waiting."""
        flight = self._ticket.flight
        if flight is not None:
            self._flights.land(flight)


class Unbegun(Chore):
    """The chore that releases claims that were granted to callers that never began to run.

    A signal handler may raise an exception between any two lines of the library, so a caller can
    be interrupted between the claim and the start of its code.
    """

    __slots__ = ("_flights", "_give_back")

    def __init__(self, flights: Flights, give_back: Callable[[Ticket, Release], None]) -> None:
        """Check every `BEGIN_WITHIN` seconds while any granted claim has not begun."""
        super().__init__()
        self._flights = flights
        self._give_back = give_back

    def do(self) -> float | None:
        """Release the claims that were granted `BEGIN_WITHIN` seconds ago or earlier."""
        granted, now = self._flights.granted, monotonic()
        for ticket, since in list(granted.items()):
            if now - since >= BEGIN_WITHIN and granted.pop(ticket, None) is not None:
                self._give_back(ticket, ticket.giving_back())
        self._flights.watched = False
        if granted:
            self._flights.watched = True
            return BEGIN_WITHIN
        return None


class Insisting(Asking):
    """A request that must reach the store: it is repeated until the store answers."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        """Start without an error logged: only the first one is."""
        super().__init__()
        self._refused = False

    def do(self) -> float | None:
        """Send the request once. Return `RETRY` after an error, or None when it is done.

        An unreadable record is logged and given up.
        """
        try:
            self.insist()
        except UnreadableError as error:  # asking again does not help
            logger.error("a record cannot be ended: %s", error)
        except Exception as error:  # noqa: BLE001 - a refusal of any kind is no reason to stop
            if not self._refused and _must_be_mended(error):
                self._refused = True
                logger.error("the store refuses to be told, which goes on being tried: %s", error)
            return RETRY
        return None

    def insist(self) -> None:
        """Send the request to the store. Any error means that it is repeated."""
        raise NotImplementedError

    @property
    def urgent(self) -> bool:
        """Always True: the request is tried once more before the process ends."""
        return True


def _must_be_mended(error: Exception) -> bool:
    """Return whether somebody has to do something about the error. An outage ends by itself."""
    return isinstance(error, ConfigurationError) or not isinstance(error, StoreError)


class Backlog:
    """The bytes of results that wait in this process until the store can be told."""

    def __init__(self) -> None:
        """Start empty."""
        self._bytes = 0
        self._lock = threading.Lock()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Start empty in a forked child: the chores of the parent stay there."""
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> bool:
        """Count `size` bytes. Return False, and count nothing, if that is too much."""
        with self._lock:
            if self._bytes + size > MOST_WAITING:
                return False
            self._bytes += size
            return True

    def remove(self, size: int) -> None:
        """Take off what was added before."""
        with self._lock:
            self._bytes -= size


_backlog: Final = Backlog()


class UnrecordedEnd(Insisting):
    """A settle or a release that must reach the store.

    If too many results wait already, this one is dropped: the record then says that the call was
    completed and that its result was not kept.
    """

    __slots__ = ("_ask", "_call", "_observers", "_size")

    def __init__(
        self, store: Store, call: Call, ask: Settle | Release, observers: Observers
    ) -> None:
        """End the call with `ask`. Settle and release are safe to repeat."""
        super().__init__()
        self._store = store
        self._call = call
        self._ask = ask
        self._observers = observers
        self._size = 0
        if isinstance(ask, Settle) and ask.result is not None:
            size = len(ask.result)
            if _backlog.add(size):
                self._size = size
            else:
                self._ask = replace(ask, result=None)
                detail = f"{MOST_WAITING // 2**20} MiB of results wait to be recorded already"
                observers.tell("not_kept", call, detail=detail)

    def do(self) -> float | None:
        """Send the request once. Return `RETRY` after an error, or None when it is done."""
        again = super().do()
        if again is None:
            _backlog.remove(self._size)
            self._size = 0
        return again

    def give_up(self) -> None:
        """Report an end that will not be recorded."""
        if isinstance(self._ask, Settle):
            self._observers.tell("never_recorded", self._call)


class Unsettled(UnrecordedEnd):
    """The chore that repeats a settle or a release that failed, until the store answers."""

    __slots__ = ()

    def __init__(
        self, store: Store, call: Call, ask: Settle | Release, observers: Observers
    ) -> None:
        """End the call with `ask`. Its trace is left out: it ends when nothing refers to it."""
        super().__init__(store, replace(call, trace=None), ask, observers)

    def insist(self) -> None:
        """Send the request again."""
        if isinstance(self._ask, Settle):
            self._store.settle(self._ask)
        else:
            self._store.release(self._ask)


class Abandoned(Insisting):
    """The chore that releases a claim if its caller was interrupted before the answer arrived."""

    __slots__ = ("_call", "_nonce")

    def __init__(self, store: Store, call: Call, nonce: str) -> None:
        """Release the claim that was sent with this nonce."""
        super().__init__()
        self._store = store
        self._call = call
        self._nonce = nonce

    def insist(self) -> None:
        """Claim again with the same nonce, and release the claim if it is granted.

        A claim that was granted before is granted again to the same nonce.
        """
        answer = self._store.claim(self._call.claim(self._nonce))
        if type(answer) is Granted:
            self._store.release(self._call.release(answer.record, unused=True))


class LateClaim(Asking):
    """The chore that claims for a run that began while the store was down, and then renews it."""

    __slots__ = ("_flights", "_record", "_ticket", "_until")

    def __init__(self, store: Store, ticket: Ticket, flights: Flights) -> None:
        """Claim with the nonce of the run, so that `LateEnd` is granted the same claim again."""
        super().__init__()
        self._store = store
        self._ticket = ticket
        self._flights = flights
        self._record: Record | None = None
        longest = ticket.call.terms.max_run
        self._until = None if longest is None else ticket.taken_at + longest

    def do(self) -> float | None:
        """Claim, or renew. Return the seconds until the next time, or None to stop.

        It stops when another attempt owns the record, and as `Renewal` does: when `max_run` is
        over, when the code was left without an end, and without a heartbeat after the claim.
        """
        ticket, terms = self._ticket, self._ticket.call.terms
        if has_left(ticket.runner):
            self._land()
            return None
        try:
            if self._record is None:
                return self._claim()
            ask = ticket.call.renew(self._record)
            if self._until is not None:
                left = self._until - monotonic()
                if left <= 0:
                    self._renewed(0)  # from now on the store must be asked
                    return None
                ask = replace(ask, lease=min(ask.lease, microseconds(left)))
            verdict = self._store.renew(ask)
        except Exception:  # noqa: BLE001 - a refusal of any kind is no reason to stop
            return RETRY
        if verdict is not Verdict.DONE:
            self._lost()
            return None
        self._renewed(ask.lease)
        return terms.heartbeat_every

    def _claim(self) -> float | None:
        """Claim. Return the seconds until the first renewal, or None if there is none."""
        call = self._ticket.call
        answer = self._store.claim(call.claim(self._ticket.record.nonce))
        if type(answer) is not Granted:
            self._lost()
            return None
        self._record, left = answer.record, answer.record.lease_end - answer.now
        if left < call.terms.lease and call.terms.heartbeat:
            return 0.0  # granted before, and the reply was lost: renew what is left of it
        self._renewed(left)
        return call.terms.heartbeat_every if call.terms.heartbeat else None

    def _renewed(self, lease: int) -> None:
        flight = self._ticket.flight
        if flight is not None:
            flight.renewed(lease / 1_000_000)

    def _lost(self) -> None:
        """Note that the record is not that of this run."""
        self._ticket.lost = True
        self._land()

    def _land(self) -> None:
        """Land the flight, so that callers in this process ask the store instead of waiting."""
        flight = self._ticket.flight
        if flight is not None:
            self._flights.land(flight)


class LateEnd(UnrecordedEnd):
    """The chore that records the end of a run that began while the store was down."""

    __slots__ = ()

    def insist(self) -> None:
        """Claim with the nonce of the run, then settle or release with the token that is granted.

        If another attempt has the record, that record stands, and "lost" is reported.
        """
        ask = self._ask
        answer = self._store.claim(self._call.claim(ask.nonce))
        if type(answer) is not Granted:
            if answer.record.nonce != ask.nonce:  # if equal: recorded, but the reply was lost
                detail = "it ran unprotected beside another attempt"
                self._observers.tell("lost", self._call, 1, detail=detail)
        elif isinstance(ask, Settle):
            self._store.settle(replace(ask, token=answer.record.token))
        else:
            self._store.release(replace(ask, token=answer.record.token))


class Lasting(Asking):
    """A chore that goes on for as long as the store exists."""

    __slots__ = ("_observers",)
    _store: Callable[[], Store | None]

    def __init__(self, store: Store, observers: Observers) -> None:
        """Hold the store by a weak reference, so that this chore does not keep it alive."""
        super().__init__()
        try:
            self._store = ref(store)
        except TypeError:  # a class with slots and without __weakref__
            self._store = lambda: store
        self._observers = observers

    @property
    def lane(self) -> object:
        """The store, or None once it is gone."""
        return self._store()


class Counting(Lasting):
    """The chore that writes to the store how many calls this process had, for the charts.

    What cannot be written waits, with its time, for an hour at most.
    """

    __slots__ = ("_lock", "_refused", "_waiting")

    def __init__(self, store: Store, observers: Observers) -> None:
        """Start with nothing that waits."""
        super().__init__(store, observers)
        self._waiting: deque[tuple[float, Counts]] = deque(maxlen=_MOST_COUNTS)
        self._lock = threading.Lock()
        self._refused = False

    def do(self) -> float | None:
        """Write what was counted. Return the seconds until the next time, or None without a store.

        An error is met and reported by the calls too. If it is not known whether the counts were
        added, they are dropped: a chart that shows too little is better than one that invents.
        """
        store: Any = self._store()
        if store is None:
            return None
        with self._lock:  # the keeper may be at it while the store is being closed
            counts = self._observers.tally.take()
            if any(counts):
                self._waiting.append((monotonic(), counts))
            while self._waiting:
                since, counts = self._waiting[0]
                try:
                    store.add_activity(counts, microseconds(monotonic() - since))
                except Exception as error:  # noqa: BLE001 - a chart must not disturb anything
                    if isinstance(error, StoreAccessError) and not self._refused:
                        self._refused = True
                        logger.warning("the charts lack the calls of this process: %s", error)
                    if getattr(error, "happened", None) is False:
                        break
                self._waiting.popleft()
        return COUNT_EVERY

    def at_end(self) -> None:
        """Write what was counted since the last time, unless somebody has removed the file."""
        file = getattr(self._store(), "file", None)
        if file is None or file.exists():
            self.do()


class Purging(Lasting):
    """The chore that removes expired records in small batches for as long as the store exists."""

    __slots__ = ()

    def do(self) -> float | None:
        """Purge one batch. Return the seconds until the next one, or None once the store is gone.

        After a full batch the next one follows in `_PURGE_AGAIN` seconds.
        """
        store = self._store()
        if store is None:
            return None
        try:
            count = store.purge(0, PURGE_BATCH)
        except OncekeyError:  # calls meet the same error and report it
            return PURGE_EVERY
        if count:
            self._observers.hand(Event(name="purged", count=count))
        return _PURGE_AGAIN if count == PURGE_BATCH else PURGE_EVERY
