"""What an attempt does while it runs and when it ends: the twin of `leaving.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from typing import Any, Final, TypeVar

from oncekey.breaker import Breaker
from oncekey.cache import Cache
from oncekey.chores import RETRY, LateEnd, Unsettled
from oncekey.colours import pause_async
from oncekey.decide import Refuse, after_refusal
from oncekey.errors import OncekeyError, StoreError, doubted
from oncekey.flight import Flight, Flights, Left
from oncekey.lease import keeper
from oncekey.observe import Name, Observers
from oncekey.stores.base import AsyncStore, Store
from oncekey.ticket import Ticket
from oncekey.verbs import Note, Release, Request, Settle, Verdict

R = TypeVar("R", bound=Request)
A = TypeVar("A")

_ASK_AGAIN: Final = (0.0, 0.05, 0.2)
ASK_PATIENCE: Final = 2.0
"""Seconds after which a verb is not asked for once more: whoever stays silent is waited for twice,
and not four times."""
SETTLE_PATIENCE: Final = 2.0


class AsyncLeaving:
    """The half of the engine that tells the store what became of an attempt."""

    examine: Callable[[], Any] | None = None
    """Looks at the store before it is used; True when it need not be looked at again."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a core is made of
        self,
        store: AsyncStore,
        behind: Store,
        flights: Flights,
        observers: Observers,
        cache: Cache | None,
        breaker: Breaker,
    ) -> None:
        """`behind` is the same store as the keeper's thread can use it."""
        self._breaker = breaker
        self._store = store
        self._behind = behind
        self._flights = flights
        self.observers = observers
        self._cache = cache

    async def note(self, ticket: Ticket, ask: Note) -> Verdict:
        """The notes are kept; the verdict says whether the attempt still owns its record."""
        if not ticket.protected:
            return Verdict.DONE
        return await self.insist(self._store.note, ask)

    async def settle(self, ticket: Ticket, ask: Settle) -> bool:
        """Whether the store could be told in time. Where another attempt won, its answer stands."""
        if not ticket.protected:
            self._end_late(ticket, ask)
            self._end(ticket, lambda: ticket.after_settle(ask))
            return True
        started = perf_counter()
        try:
            try:
                verdict = await self._store.settle(ask)
            except StoreError as error:
                verdict = await self._settle_again(ask, error)
        except OncekeyError as error:
            keeper.take_up(Unsettled(self._behind, ask), RETRY)
            self._end_unrecorded(ticket, ask)
            self.observers.tell(
                "not_recorded", ticket.call, ticket.record.attempt, detail=str(error)
            )
            return False
        except BaseException:  # cut off: what was done must be recorded all the same
            keeper.take_up(Unsettled(self._behind, ask), 0.0)
            self._end_unrecorded(ticket, ask)
            raise
        if verdict is not Verdict.DONE:
            await self._give_way(ticket)
            return True
        self._end(ticket, lambda: ticket.after_settle(ask))
        size, took = len(ask.result or ask.error or b""), perf_counter() - started
        self.observers.tell(ask.status, ticket.call, ticket.record.attempt, took, size=size)
        return True

    async def _settle_again(self, ask: Settle, failed: StoreError) -> Verdict:
        """The verdict on what failed just now, if the store tells it before patience ends."""
        give_up = monotonic() + SETTLE_PATIENCE
        while monotonic() < give_up:
            await pause_async(0.05)
            try:
                return await self._store.settle(ask)
            except StoreError as error:
                failed = error
        raise failed

    async def _give_way(self, ticket: Ticket) -> None:
        """Another attempt owns the record: its answer stands, or the lease is lost."""
        call = ticket.call
        ticket.lost = True
        self.observers.tell("lost", call, ticket.record.attempt)
        try:
            record = await self._store.get(call.scope, call.key)
        except OncekeyError:  # down, or unreadable: there is no answer to give way to
            record = None
        except BaseException:  # cut off: those who wait here must not wait for ever
            self._end(ticket, None)
            raise
        choice = after_refusal(record, call)
        self._end(ticket, lambda: record)
        if type(choice) is Refuse:
            raise choice.error
        assert record is not None  # noqa: S101 - `after_refusal` has looked
        ticket.record, ticket.duplicate = record, True

    async def leave(self, ticket: Ticket, ask: Release) -> bool:
        """The claim is given back now, or, False, as soon as the store answers."""
        started, told = perf_counter(), True
        try:
            if ticket.protected:
                await self._store.release(ask)
            else:
                self._end_late(ticket, ask)
        except OncekeyError:
            keeper.take_up(Unsettled(self._behind, ask), RETRY)
            told = False
        except BaseException:  # cut off: the key must not stay taken for a lease
            keeper.take_up(Unsettled(self._behind, ask), 0.0)
            self._end(ticket, None)
            raise
        self._end(ticket, lambda: ticket.after_release(ask))
        if ticket.protected and not ask.unused:
            name: Name = "held" if ask.hold else "released"
            took = perf_counter() - started
            self.observers.tell(name, ticket.call, ticket.record.attempt, took)
        return told

    def leave_later(self, ticket: Ticket, ask: Release) -> None:
        """The claim is given back by the keeper."""
        if ticket.protected:
            keeper.take_up(Unsettled(self._behind, ask), 0.0)
        else:
            self._end_late(ticket, ask)
        self._end(ticket, None)

    def _end_late(self, ticket: Ticket, ask: Settle | Release) -> None:
        """A run that began while the store was down is recorded as soon as it is back."""
        if ticket.renewal is not None:
            keeper.take_up(LateEnd(self._behind, ticket.call, ask, self.observers), 0.0)

    def let_go(self, ticket: Ticket) -> None:
        """The lease of the ticket is not renewed any more, and nobody here waits for it."""
        self._end(ticket, None)

    async def insist(self, verb: Callable[[R], Awaitable[A]], ask: R) -> A:
        """The answer of the verb; while its outcome is unknown it is asked for again."""
        try:
            return await verb(ask)
        except StoreError as error:
            return await self._ask_again(verb, ask, error)

    async def _ask_again(self, verb: Callable[[R], Awaitable[A]], ask: R, failed: StoreError) -> A:
        """The answer of a verb that failed just now, if that was not the end of it."""
        if failed.happened is False:
            raise failed
        give_up = monotonic() + ASK_PATIENCE
        for delay in _ASK_AGAIN:
            await pause_async(delay)
            try:
                return await verb(ask)
            except StoreError as error:
                failed = error  # no later try tells what became of the first
            if monotonic() >= give_up:
                break
        raise doubted(failed) from None

    def _end_unrecorded(self, ticket: Ticket, ask: Settle) -> None:
        """Those who wait here are told what the store does not know only where nobody insists."""
        told = ticket.call.terms.fail_open
        self._end(ticket, (lambda: ticket.after_settle(ask)) if told else None)

    def _end(self, ticket: Ticket, left: Left) -> None:
        renewal, ticket.renewal = ticket.renewal, None
        if renewal is not None:
            keeper.drop(renewal)
        flight, ticket.flight = ticket.flight, None  # `left` knows the ticket: no circle
        self._land(flight, left)

    def _land(self, flight: Flight | None, left: Left) -> None:
        if flight is not None:
            self._flights.land(flight, left)
