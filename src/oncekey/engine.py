"""The engine: how a call gets from the store to the code and back. Its twin awaits.

No rule is decided here: `machine.py` says what may happen to a record and `decide.py` what a
caller does next. The engine asks, waits, tells, and cleans up after whatever goes wrong between.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final

from oncekey import machine
from oncekey.cache import Cache
from oncekey.call import Call
from oncekey.chores import RETRY, Abandoned, LateClaim, Renewal
from oncekey.colours import invoke, pause
from oncekey.decide import (
    WATCHED_FOR,
    WORTH_WATCHING,
    Choice,
    Complete,
    Hold,
    Postpone,
    Reconcile,
    Refuse,
    Run,
    Wait,
    after_claim,
    after_reconcile,
    busy,
    in_progress,
    reused,
    unknown,
)
from oncekey.errors import (
    InProgressError,
    KeyReusedError,
    OncekeyError,
    OutcomeUnknownError,
    StoreError,
)
from oncekey.fingerprint import differ
from oncekey.flight import Flight
from oncekey.lease import keeper
from oncekey.leaving import Leaving
from oncekey.observe import Name
from oncekey.record import Record
from oncekey.ticket import Ticket, new_nonce, unprotected
from oncekey.verbs import Answer, Busy, Claim

_REFUSALS: Final[dict[type[OncekeyError], Name]] = {
    InProgressError: "busy",
    KeyReusedError: "reused",
    OutcomeUnknownError: "held",
    StoreError: "refused",
}


class Engine(Leaving):
    """Brings calls through one store."""

    def enter(self, call: Call) -> Ticket:
        """The right to run the call, or the record that answers it; else why not, raised."""
        if self.examine is not None and invoke(self.examine):
            self.examine = None
        if self.observers.trace:
            call = self.observers.entering(call)
        started = monotonic()
        try:
            known = None if self._cache is None else self._cached(self._cache, call)
            ticket = known or self._enter(call, started)
        except OncekeyError as error:
            refusal = _REFUSALS.get(type(error))
            if refusal is not None:
                took = monotonic() - started
                # Other refusals name the key, which an observer may have to hide.
                detail = str(error) if refusal == "refused" else ""
                self.observers.tell(refusal, call, seconds=took, detail=detail)
            raise
        if not ticket.protected:
            return ticket
        record = ticket.record
        name: Name = "new"
        if ticket.duplicate:
            name = "duplicate"
            if known is None and self._cache is not None and call.cached:
                self._cache.put(record, ticket.heard, started)
        elif record.uncertain and record.attempt > 1:
            name = "taken_over"
        took = ticket.taken_at - started
        self.observers.tell(name, call, record.attempt, took, reference=record.reference)
        return ticket

    def _cached(self, cache: Cache, call: Call) -> Ticket | None:
        answer = cache.get(call.identity) if call.cached else None
        return None if answer is None else self._judge(call, answer, patience=0.0)

    def _enter(self, call: Call, started: float) -> Ticket:
        """Of all who come with one key, one leads and the others follow."""
        deadline = started + call.terms.wait
        flight, leads = self._flights.join(call.identity)
        return self._lead(call, flight, deadline) if leads else self._follow(call, flight, deadline)

    def _follow(self, call: Call, flight: Flight, deadline: float) -> Ticket:
        """What the flight of another caller here means for this one; it may lead the next."""
        leads = False
        while not leads:
            patience = deadline - monotonic()
            seen = flight.answer
            if seen is not None and differ(seen.record.fingerprint, call.fingerprint):
                raise reused(call)
            if patience > 0:
                self.observers.tell("waiting", call)
            if patience <= 0 or not flight.wait(patience):
                if seen is None and patience <= 0:
                    alone = self._flights.apart(call.identity)
                    return self._lead(call, alone, deadline)  # only the store can tell
                raise busy(seen, call) if seen else in_progress(call, call.terms.retry_after)
            left = flight.outcome()
            ticket = None if left is None else self._judge(call, left, deadline - monotonic())
            if ticket is not None:
                return ticket
            flight, leads = self._flights.join(call.identity)
        return self._lead(call, flight, deadline)

    def _judge(self, call: Call, seen: Answer, patience: float) -> Ticket | None:
        """What a record that was seen here means for the call; None: only the store can tell."""
        if machine.answers(seen.record, call.fingerprint, seen.now):
            return Ticket(call, seen.record, seen.now, monotonic(), duplicate=True)
        after, answer = machine.claim(seen.record, call.claim(""), seen.now)
        choice = after_claim(answer, call, patience=patience)
        if after is seen.record and type(choice) is Refuse:
            raise choice.error
        return None

    def _lead(self, call: Call, flight: Flight, deadline: float) -> Ticket:
        """Ask the store until it is clear what to do; whoever waits here is told if it fails."""
        polls = 0
        try:
            while True:
                ask = call.claim(new_nonce())
                try:
                    if self._breaker.open:
                        self._breaker.check()
                    try:
                        answer = self._store.claim(ask)
                    except BaseException as error:  # noqa: BLE001 - it is raised again
                        answer = self._claim_again(call, ask, error)
                except StoreError as error:
                    return self._without_store(call, flight, ask.nonce, error, deadline)
                heard = monotonic()
                if self._breaker.misses:
                    self._breaker.answered()
                flight.answer, flight.taken_at = answer, heard
                patience = deadline - heard
                choice: Choice | Ticket = after_claim(answer, call, patience=patience, polls=polls)
                if type(choice) is Reconcile:
                    choice = self._reconcile(call, answer, heard, flight, patience)
                if type(choice) is Run:
                    return self._start(call, answer, heard, flight)
                if type(choice) is not Wait:
                    return self._answered(choice, call, answer, heard, flight)
                self._wait(call, answer, choice, polls)
                polls += 1
        except BaseException:
            self._flights.land(flight)
            raise

    def _wait(self, call: Call, answer: Answer, choice: Wait, polls: int) -> None:
        """The time is over, or the store has told that the record may have changed."""
        if not polls:
            self.observers.tell("waiting", call)
        watch = getattr(self._store, "watch", None) if choice.seconds >= WORTH_WATCHING else None
        if watch is None or type(answer) is not Busy:
            pause(choice.seconds)
            return
        record = answer.record
        try:
            watch(record.scope, record.key, record.token, min(choice.patience, WATCHED_FOR))
        except StoreError:  # the next claim meets the same trouble, and knows what to do about it
            pause(choice.seconds)

    def _answered(
        self,
        choice: Choice | Ticket,
        call: Call,
        answer: Answer,
        heard: float,
        flight: Flight,
    ) -> Ticket:
        """The ticket of a call that does not run; those who wait here judge by the same record."""
        if type(choice) is Ticket:
            return choice
        self._flights.land(flight, answer.record)
        if type(choice) is Refuse:
            raise choice.error
        return Ticket(call, answer.record, answer.now, heard, duplicate=True)

    def _claim_again(self, call: Call, ask: Claim, failed: BaseException) -> Answer:
        """The answer to a claim that failed just now, if the store can tell it.

        A claim that nobody waits for any more is given back.
        """
        try:
            if not isinstance(failed, StoreError):
                raise failed  # noqa: TRY301 - as if it came now
            return self._ask_again(self._store.claim, ask, failed)
        except StoreError as error:
            self._breaker.missed(error)
            raise
        except OncekeyError:
            raise
        except BaseException:  # cut off while the store may have granted it
            keeper.take_up(Abandoned(self._behind, call, ask.nonce), 0.0)
            raise

    @staticmethod
    def _reconciler(call: Call) -> Callable[[Record], object]:
        assert call.reconcile is not None  # noqa: S101 - `decide` asks only where there is one
        return call.reconcile

    def _start(self, call: Call, answer: Answer, heard: float, flight: Flight | None) -> Ticket:
        """The ticket of a granted claim, whose lease is renewed from now on."""
        ticket = Ticket(call, answer.record, answer.now, heard, flight)
        if call.terms.heartbeat:
            ticket.renewal = Renewal(self._behind, ticket, self.observers)
            # A claim whose reply was lost is granted again, with what is left of its lease.
            late = answer.record.lease_end - answer.now < call.terms.lease
            keeper.take_up(ticket.renewal, 0.0 if late else call.terms.heartbeat_every)
        return ticket

    def _without_store(
        self, call: Call, flight: Flight, nonce: str, error: StoreError, deadline: float
    ) -> Ticket:
        """The ticket of a run that no store knows of; its claim may have been granted unheard."""
        if not call.terms.fail_open:
            if error.happened is None:
                keeper.take_up(Abandoned(self._behind, call, nonce), RETRY)
            raise error
        ticket = unprotected(call, flight, nonce)
        ticket.renewal = LateClaim(self._behind, ticket)
        keeper.take_up(ticket.renewal, RETRY)
        flight.answer, flight.taken_at = Answer(ticket.record, ticket.heard), ticket.taken_at
        took = monotonic() - deadline + call.terms.wait
        self.observers.tell("unprotected", call, 1, took, detail=str(error))
        return ticket

    def _reconcile(
        self, call: Call, answer: Answer, heard: float, flight: Flight, patience: float
    ) -> Run | Wait | Ticket:
        """Ask the user's code how the uncertain attempt before this one ended."""
        ticket = self._start(call, answer, heard, None)
        try:
            said = invoke(self._reconciler(call), answer.record)
            choice = after_reconcile(said, answer, call)
        except GeneratorExit:  # who is being closed must not wait any more
            self.leave_later(ticket, call.release(ticket.record, unused=True))
            raise
        except BaseException:
            self.leave(ticket, call.release(ticket.record, unused=True))
            raise
        if isinstance(choice, Complete):
            return self._found_done(ticket, choice.result, flight)
        if isinstance(choice, Hold):
            self.leave(ticket, call.release(ticket.record, uncertain=True, hold=True))
            raise unknown(call)
        if isinstance(choice, Postpone):
            told = self.leave(ticket, call.release(ticket.record, unused=True))
            # Who could not give it back would meet its own claim as a stranger's.
            if patience <= 0 or not told:
                raise in_progress(call, choice.seconds)
            return Wait(min(choice.seconds, patience))
        self._end(ticket, None)
        return choice

    def _found_done(self, ticket: Ticket, result: bytes, flight: Flight) -> Ticket:
        """The call is answered with what `reconcile` found."""
        ask = ticket.call.settle(ticket.record, "completed", result=result)
        self.settle(ticket, ask)
        if not ticket.duplicate:
            ticket.record, ticket.duplicate = ticket.after_settle(ask), True
        self._flights.land(flight, ticket.record)
        return ticket
