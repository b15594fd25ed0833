"""The engine: take calls from the claim to the settled record, on one store.

The rules are elsewhere: `machine.py` says what may happen to a record, and `decide.py` what a
caller does next. The engine sends the requests, waits, reports to observers, and cleans up after
errors and interruptions.
"""

# Generated from engine_async.py by "make generate": do not edit.

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, perf_counter
from typing import Any, Final, TypeVar

from oncekey.compat import Runner, invoke, pause, runner
from oncekey.core import machine
from oncekey.core.call import Call
from oncekey.core.decide import (
    WATCHED_FOR,
    WORTH_WATCHING,
    Choice,
    Complete,
    Hold,
    Postpone,
    Proceed,
    Reconcile,
    Refuse,
    Wait,
    after_claim,
    after_reconcile,
    after_refusal,
    busy,
    in_progress,
    reused,
    unknown,
)
from oncekey.core.fingerprint import differ
from oncekey.core.record import Record
from oncekey.core.requests import (
    Answer,
    Busy,
    Claim,
    Mismatch,
    Note,
    Release,
    Request,
    Settle,
    Verdict,
)
from oncekey.engine.breaker import Breaker
from oncekey.engine.cache import Cache
from oncekey.engine.chores import (
    BEGIN_WITHIN,
    RETRY,
    Abandoned,
    LateClaim,
    LateEnd,
    Renewal,
    Unbegun,
    Unsettled,
)
from oncekey.engine.keeper import keeper
from oncekey.engine.single_flight import Flight, Flights, Left
from oncekey.engine.ticket import Ticket, new_nonce, unprotected
from oncekey.errors import (
    InProgressError,
    KeyReusedError,
    OncekeyError,
    OutcomeUnknownError,
    StoreAccessError,
    StoreError,
    UnreadableError,
    doubted,
)
from oncekey.observe import Name, Observers
from oncekey.stores.base import Store

R = TypeVar("R", bound=Request)
A = TypeVar("A")

_ASK_AGAIN: Final = (0.0, 0.05, 0.2)
ASK_PATIENCE: Final = 2.0
"""Seconds after which a request is not repeated any more.

A store that does not answer is then waited for twice, and not four times.
"""
SETTLE_PATIENCE: Final = 2.0
_MOMENT: Final = 0.001
"""The shortest wait in seconds: within less, the clock may not have moved."""


_REFUSALS: Final[dict[type[OncekeyError], Name]] = {
    InProgressError: "busy",
    KeyReusedError: "reused",
    OutcomeUnknownError: "held",
    StoreError: "refused",
    StoreAccessError: "refused",
}


class Engine:
    """Claims, settles and releases calls on one store."""

    examine: Callable[[], Any] | None = None
    """The check of the store before its use. It returns True when it need not run again."""

    def __init__(  # noqa: PLR0917 - what a core is made of
        self,
        store: Store,
        behind: Store,
        flights: Flights,
        observers: Observers,
        cache: Cache | None,
        breaker: Breaker,
    ) -> None:
        """Use `store` for calls, and `behind`, the same store for blocking code, in the keeper."""
        self._breaker = breaker
        self._store = store
        self._behind = behind
        self._flights = flights
        self.observers = observers
        self._cache = cache
        self._sends_once: bool = getattr(getattr(store, "blocking", store), "sends_once", False)

    def enter(self, call: Call) -> Ticket:
        """Return a ticket: the right to run the call, or the record that answers it.

        Raise InProgressError, KeyReusedError, OutcomeUnknownError or StoreError if it is refused.
        """
        if self.examine is not None and invoke(self.examine):
            self.examine = None
        if self.observers.trace:
            call = self.observers.entering(call)
        started = monotonic()
        try:
            known = None if self._cache is None else self._cached(self._cache, call)
            if known is None:
                flight, leads = self._flights.join(call.identity, started)
                deadline = started + call.terms.wait
                enter = self._lead if leads else self._follow
                ticket = enter(call, flight, deadline)
            else:
                ticket = known
            assert ticket is not None  # noqa: S101 - only what replaced another flight is put back
        except OncekeyError as error:
            refusal = _REFUSALS.get(type(error))
            if refusal is not None:
                took = monotonic() - started
                # The messages of the other errors name the key, which observers may have to hide.
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

    def _follow(self, call: Call, flight: Flight, deadline: float) -> Ticket | None:
        """Wait for the caller that leads the flight, and answer from the record that it leaves.

        If it leaves none, this caller may lead the next flight. When what is known of the flight
        is too old, one of the callers that follow it asks the store.
        """
        waited = False
        while True:
            now, known_at = monotonic(), flight.known_at
            self._refuse_another(call, flight)
            patience, good = deadline - now, flight.good_until(call.terms.retry_after) - now
            if patience > 0 and good > 0:
                if not waited:
                    self.observers.tell("waiting", call)
                waited = True
                landed = flight.wait(max(_MOMENT, min(patience, good)))
                if landed is None:  # this very thread leads it, for a coroutine
                    raise self._refused(call, flight)
                if not landed:
                    continue
                left = flight.outcome()
                ticket = None if left is None else self._judge(call, left, deadline - monotonic())
                if ticket is not None:
                    return ticket
            old_since = known_at if good <= 0 and (patience > 0 or not waited) else None
            mine, leads = self._next_flight(call, flight, old_since, waited=waited)
            flight = mine
            if leads:
                flight = mine.replaced or mine
                ticket = self._lead(call, mine, deadline)
                if ticket is not None:
                    return ticket
                waited = True

    def _next_flight(
        self, call: Call, flight: Flight, old_since: float | None, *, waited: bool
    ) -> tuple[Flight, bool]:
        """Return the flight to go on with, and whether this caller leads it."""
        if flight.landed:
            return self._flights.join(call.identity, monotonic())
        if old_since is not None:
            mine = self._flights.replace(flight, old_since)
            return (mine, True) if mine else self._flights.join(call.identity, monotonic())
        if flight.answer is None and not waited:
            return self._flights.apart(call.identity), True  # only the store can tell
        raise self._refused(call, flight)

    @staticmethod
    def _refuse_another(call: Call, flight: Flight) -> None:
        """Raise KeyReusedError if the flight is known to have another fingerprint."""
        seen = flight.answer
        if seen is not None and differ(seen.record.fingerprint, call.fingerprint):
            raise reused(call)

    @staticmethod
    def _refused(call: Call, flight: Flight) -> InProgressError:
        """Return the error for a caller that does not wait for the flight any longer."""
        seen = flight.answer
        return in_progress(call, call.terms.retry_after) if seen is None else busy(seen, call)

    def _judge(self, call: Call, seen: Answer, patience: float) -> Ticket | None:
        """Return the ticket of a duplicate if the record answers the call.

        Raise the error if the record refuses the call. Return None if the store must be asked.
        """
        if machine.answers(seen.record, call.fingerprint, seen.now):
            return Ticket(call, seen.record, seen.now, monotonic(), duplicate=True)
        after, answer = machine.claim(seen.record, call.claim(""), seen.now)
        choice = after_claim(answer, call, patience=patience)
        if after is seen.record and type(choice) is Refuse:
            raise choice.error
        return None

    def _lead(self, call: Call, flight: Flight, deadline: float) -> Ticket | None:
        """Claim until the call may run, is answered or is refused. Return its ticket.

        Return None if the run of the flight that this one replaced goes on: it is to be followed
        again. If this fails, the flight lands, so that those who follow it go on.
        """
        polls, resent, owed = 0, not self._sends_once, ""
        try:
            while True:
                ask = call.claim(new_nonce())
                owed = ask.nonce
                try:
                    if self._breaker.open:
                        self._breaker.check()
                    try:
                        answer = self._store.claim(ask)
                    except BaseException as error:  # noqa: BLE001 - it is raised again
                        resent = True
                        answer = self._claim_again(call, ask, error)
                except StoreError as error:
                    return self._without_store(call, flight, ask.nonce, error, deadline)
                heard = monotonic()
                flight.heard(answer, heard)
                if (flight.replaced or self._breaker.misses) and self._goes_on(
                    flight, answer, heard
                ):
                    return None
                patience = deadline - heard
                choice: Choice | Ticket = after_claim(answer, call, patience=patience, polls=polls)
                if type(choice) is Reconcile:
                    granted = Ticket(call, answer.record, answer.now, heard, resent=resent)
                    choice = self._reconcile(granted, answer, flight, patience)
                if type(choice) is Proceed:
                    granted = Ticket(call, answer.record, answer.now, heard, flight, resent=resent)
                    return self._start(granted, answer)
                if type(choice) is not Wait:
                    return self._answered(choice, call, answer, heard, flight)
                self._wait(call, answer, choice, polls)
                polls += 1
        except BaseException as error:
            self._give_up(call, flight, "" if isinstance(error, OncekeyError) else owed)
            raise

    def _give_up(self, call: Call, flight: Flight, owed: str) -> None:
        """Land the flight, and release the claim of a caller that was interrupted.

        `owed` is the nonce of that claim, which may have been granted.
        """
        self._flights.give_up(flight)
        if owed:
            keeper.take_up(Abandoned(self._behind, call, owed), 0.0)
            if flight.ticket is not None:
                self._flights.granted.pop(flight.ticket, None)
                self._end(flight.ticket, None)

    def _goes_on(self, flight: Flight, answer: Answer, heard: float) -> bool:
        """Close the breaker. Return whether the run of the flight that was replaced goes on."""
        if self._breaker.misses:
            self._breaker.answered()
        before = flight.replaced
        if before is None:
            return False
        if type(answer) is Busy:
            before.heard(answer, heard)
            return self._flights.put_back(flight) is not None
        if type(answer) is Mismatch:  # which says nothing about the run
            self._flights.put_back(flight)
        else:
            self._flights.supersede(flight, answer.record.nonce)
        return False

    def _wait(self, call: Call, answer: Answer, choice: Wait, polls: int) -> None:
        """Wait until the time of `choice` is over, or the store reports a change of the record."""
        if not polls:
            self.observers.tell("waiting", call)
        watch = getattr(self._store, "watch", None) if choice.seconds >= WORTH_WATCHING else None
        if watch is None or type(answer) is not Busy:
            pause(choice.seconds)
            return
        record = answer.record
        try:
            watch(record.scope, record.key, record.token, min(choice.patience, WATCHED_FOR))
        except StoreError:  # the next claim meets and handles the same error
            pause(choice.seconds)

    def _answered(
        self,
        choice: Choice | Ticket,
        call: Call,
        answer: Answer,
        heard: float,
        flight: Flight,
    ) -> Ticket:
        """Return the ticket of a call that does not run, or raise the error of its refusal.

        The flight lands with the record, which answers the callers that follow it too.
        """
        if type(choice) is Ticket:
            return choice
        self._flights.land(flight, answer.record)
        if type(choice) is Refuse:
            raise choice.error
        return Ticket(call, answer.record, answer.now, heard, duplicate=True)

    def _claim_again(self, call: Call, ask: Claim, failed: BaseException) -> Answer:
        """Repeat a claim that failed. Return the answer, or raise the error."""
        try:
            if not isinstance(failed, StoreError):
                raise failed
            return self._ask_again(self._store.claim, ask, failed)
        except StoreError as error:
            self._breaker.missed(error)
            raise
        except OncekeyError as error:
            if isinstance(failed, StoreError) and not isinstance(error, UnreadableError):
                # It was refused now, but may have been granted the first time.
                keeper.take_up(Abandoned(self._behind, call, ask.nonce), RETRY)
            raise

    @staticmethod
    def _reconciler(call: Call) -> Callable[[Record], object]:
        assert call.reconcile is not None  # noqa: S101 - `decide` asks only where there is one
        return call.reconcile

    def _start(self, ticket: Ticket, answer: Answer) -> Ticket:
        """Start to renew the lease of a granted claim. Return its ticket."""
        call, flight = ticket.call, ticket.flight
        if flight is not None:
            self._grant(ticket, flight)
        if call.terms.heartbeat:
            ticket.renewal = Renewal(self._behind, ticket, self.observers, self._flights)
            # If the reply to a claim was lost, the repeated claim is granted what is left of the
            # lease, so the lease has to be renewed at once.
            late = ticket.resent and answer.record.lease_end - answer.now < call.terms.lease
            keeper.take_up(ticket.renewal, 0.0 if late else call.terms.heartbeat_every)
        return ticket

    def _grant(self, ticket: Ticket, flight: Flight) -> None:
        """Have the claim released if its code does not begin: the caller may be interrupted."""
        flights, flight.ticket, ticket.watched = self._flights, ticket, True
        flights.adopt(flight)
        flights.granted[ticket] = ticket.taken_at
        if not flights.watched:
            keeper.take_up(Unbegun(flights, self.leave_later), BEGIN_WITHIN)
            flights.watched = True  # not before: an interruption in between would leave no chore

    def begin(self, ticket: Ticket, runner: Runner | None) -> bool:
        """Return whether the code may run. Return False if the claim was released meanwhile."""
        if not ticket.begun:
            ticket.runner = runner
            if ticket.watched and self._flights.granted.pop(ticket, None) is None:
                return False
            ticket.begun = True
        return True

    def _without_store(
        self, call: Call, flight: Flight, nonce: str, error: StoreError, deadline: float
    ) -> Ticket:
        """Return an unprotected ticket if the call may fail open, else raise the error.

        If the outcome of the claim is unknown, the keeper releases it. A call is refused if its
        flight replaced one with a run in this process, or is apart from it: it would run beside
        that one.
        """
        before = self._flights.put_back(flight)
        if before is None and call.terms.fail_open:
            before = self._flights.beside(flight)
        if not call.terms.fail_open or before is not None:
            if error.happened is None:
                keeper.take_up(Abandoned(self._behind, call, nonce), RETRY)
            raise error if before is None else self._refused(call, before)
        ticket = unprotected(call, flight, nonce)
        self._grant(ticket, flight)
        ticket.renewal = LateClaim(self._behind, ticket, self._flights)
        keeper.take_up(ticket.renewal, RETRY)
        flight.unclaimed(Answer(ticket.record, ticket.heard), ticket.taken_at)
        took = monotonic() - deadline + call.terms.wait
        self.observers.tell("unprotected", call, 1, took, detail=str(error))
        return ticket

    def _reconcile(
        self, ticket: Ticket, answer: Answer, flight: Flight, patience: float
    ) -> Proceed | Wait | Ticket:
        """Ask `reconcile` how the uncertain attempt before this one ended, and do what it says.

        Return a ticket if the call is answered, `Proceed` if it is to run, and `Wait` if
        `reconcile` postponed the decision. Raise OutcomeUnknownError if the record is held.
        """
        call, ticket.runner = ticket.call, runner()
        try:
            try:
                self._start(ticket, answer)
                said = invoke(self._reconciler(call), answer.record)
                choice = after_reconcile(said, answer, call)
            except GeneratorExit:  # code that is being closed must not wait
                self.leave_later(ticket, ticket.giving_back())
                raise
            except BaseException:
                self.leave(ticket, ticket.giving_back())
                raise
            if isinstance(choice, Complete):
                return self._found_done(ticket, choice.result, flight)
            if isinstance(choice, Hold):
                self.leave(ticket, call.release(ticket.record, uncertain=True, hold=True))
                raise unknown(call)
            if isinstance(choice, Postpone):
                told = self.leave(ticket, ticket.giving_back())
                # A claim that was not released would refuse the next claim of this same caller.
                if patience <= 0 or not told:
                    raise in_progress(call, choice.seconds)
                return Wait(min(choice.seconds, patience))
            return choice
        finally:
            self.let_go(ticket)  # also if its end was cut off

    def _found_done(self, ticket: Ticket, result: bytes, flight: Flight) -> Ticket:
        """Settle with the result that `reconcile` found, and return the ticket of a duplicate."""
        ask = ticket.call.settle(ticket.record, "completed", result=result)
        self.settle(ticket, ask)
        if not ticket.duplicate:
            ticket.record, ticket.duplicate = ticket.after_settle(ask), True
        self._flights.land(flight, ticket.record)
        return ticket

    def note(self, ticket: Ticket, ask: Note) -> Verdict:
        """Keep the notes. Return a verdict other than DONE if the attempt lost its record."""
        if not ticket.protected:
            return Verdict.DONE
        return self.insist(self._store.note, ask)

    def settle(self, ticket: Ticket, ask: Settle) -> bool:
        """Settle the record. Return False if the store did not answer in time.

        The keeper then repeats the request until the store answers. If another attempt owns the
        record, its answer stands: the ticket becomes a duplicate, or the error is raised.
        """
        if not ticket.protected:
            self._end_late(ticket, ask)
            self._end(ticket, lambda: ticket.after_settle(ask))
            return True
        started = perf_counter()
        try:
            try:
                verdict = self._store.settle(ask)
            except StoreError as error:
                verdict = self._settle_again(ask, error)
        except OncekeyError as error:
            keeper.take_up(Unsettled(self._behind, ticket.call, ask, self.observers), RETRY)
            self._breaker.not_recorded()
            self._end_unrecorded(ticket, ask)
            self.observers.tell(
                "not_recorded", ticket.call, ticket.record.attempt, detail=str(error)
            )
            return False
        except BaseException:  # interrupted: what was done must be recorded all the same
            keeper.take_up(Unsettled(self._behind, ticket.call, ask, self.observers), 0.0)
            self._end_unrecorded(ticket, ask)
            raise
        if verdict is not Verdict.DONE:
            self._give_way(ticket)
            return True
        self._end(ticket, lambda: ticket.after_settle(ask))
        size, took = len(ask.result or ask.error or b""), perf_counter() - started
        self.observers.tell(ask.status, ticket.call, ticket.record.attempt, took, size=size)
        return True

    def _settle_again(self, ask: Settle, failed: StoreError) -> Verdict:
        """Repeat a settle that failed for `SETTLE_PATIENCE` seconds. Return the verdict.

        Raise the last error if the store does not answer in that time.
        """
        give_up = monotonic() + SETTLE_PATIENCE
        while monotonic() < give_up:
            pause(0.05)
            try:
                return self._store.settle(ask)
            except StoreError as error:
                failed = error
        raise failed

    def _give_way(self, ticket: Ticket) -> None:
        """Make the ticket a duplicate of the attempt that owns the record now.

        Raise the error if that attempt has left no answer.
        """
        call = ticket.call
        ticket.lost = True
        try:
            record = self._store.get(call.scope, call.key)
        except OncekeyError:  # down, or unreadable: there is no other answer
            record = None
        # A worker that was quicker than its producer has freed the record of an enqueued job.
        if record is not None or call.surface != "enqueue":
            self.observers.tell("lost", call, ticket.record.attempt)
        choice = after_refusal(record, call)
        self._end(ticket, lambda: record)
        if type(choice) is Refuse:
            raise choice.error
        assert record is not None  # noqa: S101 - `after_refusal` has looked
        ticket.record, ticket.duplicate = record, True

    def leave(self, ticket: Ticket, ask: Release) -> bool:
        """Release the claim. Return False if the store failed, and the keeper is to repeat it."""
        started, told, mine = perf_counter(), True, True
        try:
            if ticket.protected:
                mine = self._store.release(ask) is Verdict.DONE
            else:
                self._end_late(ticket, ask)
        except OncekeyError:
            keeper.take_up(Unsettled(self._behind, ticket.call, ask, self.observers), RETRY)
            told = False
        except BaseException:  # interrupted: the key must not stay taken for a whole lease
            keeper.take_up(Unsettled(self._behind, ticket.call, ask, self.observers), 0.0)
            self._end(ticket, None)
            raise
        self._end(ticket, (lambda: ticket.after_release(ask)) if mine else None)
        if ticket.protected and not ask.unused:
            name: Name = "held" if ask.hold else "released"
            took = perf_counter() - started
            self.observers.tell(name, ticket.call, ticket.record.attempt, took)
        return told

    def leave_later(self, ticket: Ticket, ask: Release) -> None:
        """Let the keeper release the claim, without waiting for it."""
        if ticket.protected:
            keeper.take_up(Unsettled(self._behind, ticket.call, ask, self.observers), 0.0)
        else:
            self._end_late(ticket, ask)
        self._end(ticket, None)

    def _end_late(self, ticket: Ticket, ask: Settle | Release) -> None:
        """Let the keeper record the end of a run that began while the store was down."""
        if ticket.renewal is not None:
            keeper.take_up(LateEnd(self._behind, ticket.call, ask, self.observers), 0.0)

    def let_go(self, ticket: Ticket) -> None:
        """Stop renewing the lease, and let the callers that follow this run go on."""
        self._end(ticket, None)

    def insist(self, verb: Callable[[R], A], ask: R) -> A:
        """Send a request to the store, and repeat it while its outcome is unknown.

        Return the answer, or raise StoreError.
        """
        try:
            return verb(ask)
        except StoreError as error:
            return self._ask_again(verb, ask, error)

    def _ask_again(self, verb: Callable[[R], A], ask: R, failed: StoreError) -> A:
        """Repeat a request that failed, unless it is known that it did not happen.

        Return the answer, or raise StoreError after `ASK_PATIENCE` seconds or the last try.
        """
        if failed.happened is False:
            raise failed
        give_up = monotonic() + ASK_PATIENCE
        for delay in _ASK_AGAIN:
            pause(delay)
            try:
                return verb(ask)
            except StoreError as error:
                failed = error  # a later failure does not say what became of the first try
            if monotonic() >= give_up:
                break
        raise doubted(failed) from None

    def _end_unrecorded(self, ticket: Ticket, ask: Settle) -> None:
        """End a run that is not recorded yet.

        Callers that follow it get its result only where calls may fail open: the store does not
        know the result yet.
        """
        told = ticket.call.terms.fail_open
        self._end(ticket, (lambda: ticket.after_settle(ask)) if told else None)

    def _end(self, ticket: Ticket, left: Left) -> None:
        if ticket.renewal is not None:
            keeper.drop(ticket.renewal)
            ticket.renewal = None  # not before: who is interrupted in between tries again
        flight = ticket.flight  # read once: the keeper may end it meanwhile
        if flight is not None:
            self._flights.land(flight, left)
            ticket.flight = None  # as above; `left` refers to the ticket: avoid a cycle
