"""The part of a run that the blocking and the async one share: notes, and the ending requests."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token
from itertools import count
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from oncekey.compat import Runner, generation
from oncekey.core.call import Call
from oncekey.core.codec import Codec, NotKeepableError, UnreadableBytesError
from oncekey.core.decide import Fail, Leave, lost, served
from oncekey.core.record import Notes, Record, read_notes
from oncekey.core.requests import Note, Release, Settle, Verdict
from oncekey.engine.ticket import Ticket
from oncekey.errors import ConfigurationError, NotRecordedError, ResultNotKeptError, UnreadableError
from oncekey.observe import Observers
from oncekey.policy import strict

T = TypeVar("T")

_NOTHING: Final = object()

running: Final[ContextVar[BaseRun | None]] = ContextVar("oncekey_attempt", default=None)
"""The run that the current code belongs to."""


class Outcome(Struct, Generic[T]):
    """A value, whether it is a duplicate's, and the key and number of the attempt that made it."""

    value: T
    duplicate: bool
    key: str
    attempt: int


class BaseRun:
    """One attempt from its start to its end: completed, failed, released or abandoned.

    Functions, attempt blocks, HTTP, jobs and messages all use it. User code sees an `Attempt`.
    """

    # Defaults that most runs never change: class attributes cost nothing per run.
    outer: BaseRun | None = None
    """The run inside of which this one was entered."""
    keeps: bool | None = None
    """Whether to keep the HTTP response whatever its status; None if there is no response."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of an async run, for blocking code on a thread that uses the run."""
    attempt: Any = None
    """The `Attempt` or `AsyncAttempt` of this run, created when it is first asked for."""
    _value: object = _NOTHING
    _lost_on_duplicates: str | None = None
    _notes: Notes | None = None
    _steps: set[str] | None = None
    _revision = 0
    _reset: Token[BaseRun | None] | None = None

    def __init__(self, engine: Any, ticket: Ticket) -> None:
        """Run with this ticket. The engine is blocking or async, as the run is."""
        self.engine = engine
        self.ticket = ticket
        self.call: Final = ticket.call
        self.observers: Final[Observers] = engine.observers
        self.ended = ticket.duplicate
        self._generation: Final = generation()
        self._unnoted: Final[set[str]] = set()

    @property
    def record(self) -> Record:
        """The record as this run saw it last."""
        return self.ticket.record

    @property
    def lives(self) -> bool:
        """Whether code of this run may be running in this process."""
        return not self.ended and self._generation == generation()

    @property
    def result(self) -> Any:
        """The result: the value completed here, or for a duplicate a copy of the first one.

        For a duplicate of a kept failure this raises the failure. Before the end it raises
        ConfigurationError.
        """
        if self.ticket.duplicate:
            return served(self.ticket.record, self.call)
        if self._value is _NOTHING:
            self._must_be_here("the result")
            msg = f"{self.call.name} has no result before complete()"
            raise ConfigurationError(msg)
        return self._value

    def next_message(self) -> int:
        """Return the number of the next message that this run puts into an outbox, from 1 on."""
        numbers: Iterator[int] = self.__dict__.setdefault("_messages", count(1))
        return next(numbers)

    def must_live(self, what: str) -> None:
        """Raise ConfigurationError if this is a duplicate or has ended. `what` names the use."""
        if self.ticket.duplicate:
            msg = f"{what} is for code that runs, but {self.call.name} is a duplicate"
            raise ConfigurationError(msg)
        self._must_be_here(what)
        if self.ended:
            msg = f"{what} was used after {self.call.name} had ended"
            raise ConfigurationError(msg)

    def _must_be_here(self, what: str) -> None:
        """Raise ConfigurationError in a process that was forked while this run went on."""
        if self._generation != generation():
            msg = (
                f"{what} was used in a forked child of the process that runs {self.call.name}, "
                f"and only that process may end it; leave the child with os._exit()"
            )
            raise ConfigurationError(msg)

    def become_current(self) -> None:
        """Make this the current run of the code that is called from here."""
        outer = running.get()
        if outer is not self:  # entered a second time: it is not its own outer run
            self.outer = outer
        self._reset = running.set(self)
        if self.call.trace is not None:
            self.call.trace.attach()

    def stop_being_current(self) -> None:
        """Make the outer run the current one again."""
        self.attempt = None  # it refers to this run: avoid a cycle
        assert self._reset is not None  # noqa: S101 - it has become current before
        try:
            running.reset(self._reset)
        except (ValueError, RuntimeError):
            # The run was closed from another context, in which it was never the current one, or a
            # `with` block of user code around the attempt has ended before it.
            return
        if self.call.trace is not None:
            self.call.trace.detach()

    def begin(self, runner: Runner | None) -> bool:
        """Become current. Return False if the keeper has released the claim meanwhile."""
        if not self.engine.begin(self.ticket, runner):
            self.ended = True
            return False
        self.become_current()
        return True

    def leave(self) -> None:
        """Stop being current, and abandon the run if it was interrupted before its end."""
        if self._reset is not None:
            self.stop_being_current()
        self.abandon()

    def abandon(self) -> None:
        """If the run has not ended, stop renewing its lease and let waiting callers go on.

        Its end may itself have been interrupted.
        """
        ticket = self.ticket
        if not self.ended or ticket.renewal is not None or ticket.flight is not None:
            self.engine.let_go(ticket)
        ticket.runner = None  # it refers to this run: avoid a cycle

    # Notes and steps

    def read_notes(self) -> Notes:
        """Return the notes of this run and of those before it.

        Raise UnreadableError if they cannot be decoded.
        """
        if self._notes is None:
            try:
                self._notes = read_notes(self.ticket.record.noted)
            except UnreadableBytesError as error:
                msg = f"the notes of {self.call.name} cannot be read: {error}"
                raise UnreadableError(msg, key=self.call.key, scope=self.call.scope) from None
        return self._notes

    def _noting(self, change: Callable[[Notes], Notes]) -> Note:
        """Return the request that keeps the changed notes.

        Each request holds all notes so far, so a later one replaces an earlier one.
        """
        with self._noting_one_by_one():
            self._notes = change(self.read_notes())
            self._revision = max(self._revision, self.ticket.record.revision) + 1
            return self.call.note(self.ticket.record, self._notes.encode(), self._revision)

    def _noting_one_by_one(self) -> threading.Lock:
        """Return the lock of this run's notes. It is created by the first use."""
        lock: threading.Lock = vars(self).setdefault("_lock", threading.Lock())
        return lock

    def _noted(self, verdict: Verdict) -> None:
        if verdict is not Verdict.DONE:
            self.ticket.lost = True
            raise lost(self.call)

    def _begin_step(self, name: str) -> bool:
        """Return whether an earlier attempt did the step.

        Raise ConfigurationError if the name is empty or was used in this attempt.
        """
        self.must_live("step")
        if not isinstance(name, str) or not name:
            msg = "a step needs a name, for example step('load', load, path)"
            raise ConfigurationError(msg)
        if self._steps is None:
            self._steps = set()
        if name in self._steps:
            msg = f"{self.call.name} has a step {name!r} already; each step needs its own name"
            raise ConfigurationError(msg)
        self._steps.add(name)
        return name in self.read_notes().steps

    def _step_result(self, name: str, codec: Codec) -> Any:
        data = self.read_notes().steps[name]
        if data is None:
            msg = f"the step {name!r} of {self.call.name} was done, but its result was not kept"
            raise ResultNotKeptError(msg, key=self.call.key, scope=self.call.scope)
        try:
            return codec.decode(data)
        except UnreadableBytesError as error:
            msg = f"the step {name!r} of {self.call.name} cannot be read: {error}"
            raise UnreadableError(msg, key=self.call.key, scope=self.call.scope) from None

    def _step_noting(self, name: str, value: object, codec: Codec) -> Note:
        try:
            data = codec.encode(value)
        except NotKeepableError as error:
            data = None
            self._not_kept(f"step {name!r}: {error}", codec.advice)
        return self._noting(lambda notes: notes.with_step(name, data))

    # The end

    def settlement(self, value: object) -> Settle:
        """Return the request that settles the record with the value.

        If the value cannot be kept, only the fact that the call is done is.
        """
        call = self.call
        data: bytes | None = None
        if self.ticket.renewal is None and not self.ticket.protected:
            return call.settle(self.ticket.record, "completed")  # switched off: it is never read
        try:
            data = call.codec.encode(value)
        except NotKeepableError as error:
            self._not_kept(str(error), call.codec.advice)
            if call.surface != "http" and strict():  # a response may be too large or a stream
                self._lost_on_duplicates = str(error)
        if data is not None and len(data) > call.terms.max_result:
            self._not_kept(f"{len(data)} bytes are more than max_result")
            data = None
        return call.settle(self.ticket.record, "completed", result=data)

    def _not_kept(self, why: str, advice: str = "") -> None:
        detail = f"{why}; {advice}" if advice else why
        self.observers.tell("not_kept", self.call, self.record.attempt, detail=detail)

    def settled(self, value: object, *, recorded: bool = True) -> None:
        """End with the value. Raise NotRecordedError if it is not recorded and must be.

        Raise ConfigurationError in strict mode if duplicates do not get the value.
        """
        self.ended = True
        if self._lost_on_duplicates is not None:
            msg = (
                f"{self.call.name} was done, but duplicates could not get what it returned: "
                f"{self._lost_on_duplicates}; annotate what the function returns, or return "
                f"plain values (ONCEKEY_STRICT makes this an error)"
            )
            raise ConfigurationError(msg)
        if not recorded and not self.call.terms.fail_open:
            msg = (
                f"{self.call.name} was done, but the store could not be told yet; recording goes "
                f"on in the background: ask again with the same key"
            )
            call = self.call
            raise NotRecordedError(msg, key=call.key, scope=call.scope, result=value)
        self._value = value

    def _releasing(self, why: str, *, uncertain: bool, brief: bool) -> Release:
        """Return the request that frees the key, or holds it if the outcome is uncertain."""
        self.must_live("release")
        self.ended = True
        hold = uncertain and self.call.terms.hold and self.call.reconcile is None
        data = why.encode(errors="backslashreplace") or None
        brief = brief and not self.ticket.resent
        return self.call.release(
            self.ticket.record, data, uncertain=uncertain, hold=hold, brief=brief
        )

    def _failing(
        self, error: BaseException, data: bytes, judge: Callable[..., Fail | Leave]
    ) -> Settle | Release:
        """Return the request that ends the run after its code raised `error`."""
        self.ended = True
        ending = judge(error, self.call, unsure=bool(self._unnoted))
        record = self.ticket.record
        if isinstance(ending, Fail):
            return self.call.settle(record, "failed", error=data)
        return self.call.release(record, data, uncertain=ending.uncertain, hold=ending.hold)


def leave_to_parent() -> None:
    """Let the child of a fork end none of the runs that its parent was in the middle of.

    A child that returns from the function, or raises SystemExit in it, would otherwise settle or
    release the record while the parent still works.
    """
    run = running.get()
    while run is not None:
        run.ended, run = True, run.outer


if hasattr(os, "register_at_fork"):  # pragma: no branch - absent on Windows, which cannot fork
    os.register_at_fork(after_in_child=leave_to_parent)


def forbid_nesting(call: Call, observers: Observers) -> None:
    """Raise ConfigurationError for a call inside of itself, which would wait for itself.

    `observers` identifies the store: every `Once` has its own.
    """
    outer = running.get()
    while outer is not None:
        if (
            outer.lives
            and not outer.ticket.lost
            and outer.call.identity == call.identity
            and outer.observers is observers
        ):
            msg = f"{call.name} is called from inside itself; call the plain function instead"
            raise ConfigurationError(msg)
        outer = outer.outer
