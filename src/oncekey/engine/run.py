"""The life of one attempt in code that blocks: enter, complete, fail, release, abandon.

Functions, attempt blocks, HTTP, jobs and messages all go through it.
"""

# Generated from run_async.py by "make generate": do not edit.

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from oncekey.compat import invoke, runner
from oncekey.core.call import Call
from oncekey.core.codec import codec_of, encode_error
from oncekey.core.decide import after_error, served
from oncekey.core.requests import Settle
from oncekey.engine.engine import Engine
from oncekey.engine.run_base import BaseRun, Outcome, forbid_nesting
from oncekey.engine.ticket import Ticket, unprotected


class Run(BaseRun):
    """One attempt from its start to its end: completed, failed, released or abandoned."""

    engine: Engine

    def note(self, facts: dict[str, object]) -> None:
        """Keep the facts, so that they survive a crash and reach the next attempt."""
        self.must_live("note")
        ask = self._noting(lambda notes: notes.with_facts(facts))
        self._noted(self.engine.note(self.ticket, ask))

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Run the function and keep its result, or return the result that was kept before."""
        codec = codec_of(function)
        if self._begin_step(name):
            return self._step_result(name, codec)
        value = invoke(function, *args, **kwargs)
        ask = self._step_noting(name, value, codec)
        self._unnoted.add(name)  # done, but not recorded: the next attempt would repeat it
        self._noted(self.engine.note(self.ticket, ask))
        self._unnoted.discard(name)
        return value

    def complete(self, value: object = None) -> None:
        """End the attempt: the call is done, and duplicates get this value."""
        self.must_live("complete")
        recorded = self.engine.settle(self.ticket, self.settlement(value))
        self.settled(value, recorded=recorded)

    def release(self, why: str = "", *, uncertain: bool = False, brief: bool = False) -> None:
        """End the attempt and free the key. If `uncertain`, the policy decides what follows.

        `brief` says that the record need not be remembered, unless it has notes for instance.
        """
        self.engine.leave(self.ticket, self._releasing(why, uncertain=uncertain, brief=brief))

    def fail(self, error: BaseException) -> bool:
        """End the attempt with this error. Return True if the answer of another attempt stands."""
        ask = self._failing(error, encode_error(error), after_error)
        if not isinstance(ask, Settle):
            if isinstance(error, GeneratorExit):  # code that is being closed must not wait
                self.engine.leave_later(self.ticket, ask)
            else:
                self.engine.leave(self.ticket, ask)
            return False
        self.engine.settle(self.ticket, ask)
        return self.ticket.duplicate

    def __enter__(self) -> Self:
        """Begin the attempt. Claim again if the keeper has released the claim meanwhile."""
        while not self.begin(None):
            self.ticket = self.engine.enter(self.call)
            self.ended = self.ticket.duplicate
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete without a value or fail with the error, unless the attempt has ended."""
        self.stop_being_current()
        try:
            if not self.ended:
                if error is None:
                    self.complete(None)
                else:
                    self.fail(error)
        finally:
            self.abandon()


def enter(engine: Engine, call: Call, *, active: bool) -> Run:
    """Enter the call. Return its run, which is not current yet and may be a duplicate."""
    return Run(engine, admit(engine, call, active=active))


def admit(engine: Engine, call: Call, *, active: bool) -> Ticket:
    """Return a ticket: the right to run the call, or the record that answers it.

    If protection is not active, the store is not asked. Raise ConfigurationError if the call is
    made from inside itself.
    """
    if not active:
        admitted: Ticket = invoke(unprotected, call)
        return admitted
    forbid_nesting(call, engine.observers)
    return engine.enter(call)


def perform(
    engine: Engine,
    call: Call,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    active: bool,
) -> Outcome[Any]:
    """Run the function, unless a result is kept. Return the value and how it came about."""
    ticket = admit(engine, call, active=active)
    value = live(engine, ticket, function, args, kwargs)
    return Outcome(value, ticket.duplicate, call.key, ticket.record.attempt)


def live(
    engine: Engine,
    ticket: Ticket,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Run the function for this ticket. Return its result, or the one that was kept before."""
    if ticket.duplicate:
        return served(ticket.record, ticket.call)
    run = Run(engine, ticket)
    begun, value = True, None
    try:
        begun = run.begin(runner())
        if begun:
            value = invoke(function, *args, **kwargs)
    except BaseException as error:
        if run.ended or not run.fail(error):
            raise
    else:
        if not run.ended:
            run.settled(value, recorded=engine.settle(ticket, run.settlement(value)))
            if begun and not ticket.duplicate:
                return value
    finally:
        run.leave()
    if begun:
        return run.result
    again = engine.enter(ticket.call)
    value = live(engine, again, function, args, kwargs)
    ticket.record, ticket.duplicate = again.record, again.duplicate
    return value
