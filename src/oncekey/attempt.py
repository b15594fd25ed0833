"""An attempt, as the code that runs sees it. Its twin awaits."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from oncekey.attempt_base import BaseAttempt, Outcome
from oncekey.attempt_running import current_of, forbid_nesting
from oncekey.compat import invoke
from oncekey.core.call import Call
from oncekey.core.codec import codec_of, encode_error
from oncekey.core.decide import served
from oncekey.core.requests import Settle
from oncekey.engine.engine import Engine
from oncekey.engine.ticket import Ticket, unprotected

T = TypeVar("T")


class Attempt(BaseAttempt):
    """One attempt at a call, or the settled record that answers it."""

    _engine: Engine

    def note(self, **facts: object) -> None:
        """The facts survive a crash and are handed to the next attempt."""
        self._must_run("note")
        ask = self._noting(lambda notes: notes.with_facts(facts))
        self._noted(self._engine.note(self._ticket, ask))

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """The result of the step, which is not done again by a later attempt."""
        codec = codec_of(function)
        if self._begin_step(name):
            kept: T = self._step_result(name, codec)
            return kept
        value: T = invoke(function, *args, **kwargs)
        ask = self._step_noting(name, value, codec)
        self._unnoted.add(name)  # it is done, and the next attempt would not know
        self._noted(self._engine.note(self._ticket, ask))
        self._unnoted.discard(name)
        return value

    def complete(self, value: object = None) -> None:
        """The call is done, and duplicates get this value from now on."""
        self._must_run("complete")
        self._settled(value, self._engine.settle(self._ticket, self._settling(value)))

    def release(self, why: str = "", *, uncertain: bool = False) -> None:
        """The key is free again, as after an error: the next call runs.

        `uncertain` says that the effect may have happened: then the policy decides, as after a
        crash.
        """
        self._engine.leave(self._ticket, self._releasing(why, uncertain=uncertain))

    def _fail(self, error: BaseException) -> bool:
        """The call ended with this error; whether another attempt's answer stands instead."""
        ask = self._failing(error, encode_error(error))
        if not isinstance(ask, Settle):
            if isinstance(error, GeneratorExit):  # who is being closed must not wait any more
                self._engine.leave_later(self._ticket, ask)
            else:
                self._engine.leave(self._ticket, ask)
            return False
        self._engine.settle(self._ticket, ask)
        return self._ticket.duplicate

    def __enter__(self) -> Self:
        """From here on this is the current attempt."""
        self._become_current()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The attempt has ended: completed, failed or released."""
        self._stop_being_current()
        if self._ended:
            return
        try:
            if error is None:
                self.complete(None)
            else:
                self._fail(error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Nobody here waits for it or renews its lease, even if it was cut off before it ended."""
        if not self._ended:
            self._engine.let_go(self._ticket)


def enter(engine: Engine, call: Call, *, active: bool) -> Attempt:
    """The attempt at a call, running or answered; it is not current yet."""
    return Attempt(engine, admit(engine, call, active=active))


def admit(engine: Engine, call: Call, *, active: bool) -> Ticket:
    """The right to run the call, or the record that answers it.

    Without protection it runs, and no store hears of it.
    """
    if not active:
        admitted: Ticket = invoke(unprotected, call)
        return admitted
    forbid_nesting(call, engine.observers)
    return engine.enter(call)


def perform(  # noqa: PLR0913 - a call, a function and all that it is called with
    engine: Engine,
    call: Call,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    active: bool,
) -> Outcome[Any]:
    """The outcome of the function, which ran now or before."""
    ticket = admit(engine, call, active=active)
    value = run(engine, ticket, function, args, kwargs)
    return Outcome(value, ticket.duplicate, call.key, ticket.record.attempt)


def run(
    engine: Engine,
    ticket: Ticket,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:  # noqa: ANN401 - whatever the function returns
    """What the function returned, now or before."""
    if ticket.duplicate:
        return served(ticket.record, ticket.call)
    attempt = Attempt(engine, ticket)
    attempt._become_current()  # noqa: SLF001 - the same module
    try:
        value = invoke(function, *args, **kwargs)
    except BaseException as error:
        if attempt._ended or not attempt._fail(error):  # noqa: SLF001 - the same module
            raise
    else:
        if not attempt._ended:  # noqa: SLF001 - the same module
            ask = attempt._settling(value)  # noqa: SLF001 - the same module
            attempt._settled(value, engine.settle(ticket, ask))  # noqa: SLF001 - the same module
    finally:
        attempt._stop_being_current()  # noqa: SLF001 - the same module
        attempt._let_go()  # noqa: SLF001 - the same module
    return attempt.result


def current() -> Attempt:
    """The attempt whose code this is, inside a protected function that blocks."""
    return current_of(Attempt, "current_async")
