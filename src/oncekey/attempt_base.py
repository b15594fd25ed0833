"""What both colours of an attempt share: its facts, its notes and its rules of use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct

from oncekey.compat import generation
from oncekey.core.codec import Codec, NotKeepableError, UnreadableBytesError
from oncekey.core.decide import Fail, after_error, lost, served
from oncekey.core.record import Notes, Record, read_notes
from oncekey.core.requests import Note, Release, Settle, Verdict
from oncekey.engine.ticket import Ticket
from oncekey.errors import ConfigurationError, NotRecordedError, ResultNotKeptError, UnreadableError
from oncekey.observe import Observers

T = TypeVar("T")

_NOTHING: Final = object()
running: Final[ContextVar[BaseAttempt | None]] = ContextVar("oncekey_attempt", default=None)
"""The attempt whose code this is."""


class Outcome(Struct, Generic[T]):
    """A value, and how it came about."""

    value: T
    duplicate: bool
    key: str
    attempt: int


class BaseAttempt:
    """One attempt at a call, or the settled record that answers it."""

    # What most attempts have no need of stands here, and is not made for each.
    _outer: BaseAttempt | None = None
    _value: object = _NOTHING
    _notes: Notes | None = None
    _begun: set[str] | None = None
    _revision = 0
    _reset: Token[BaseAttempt | None]
    _keeps: bool | None = None
    """Whether the response is to be kept whatever it is; None where there is no response."""
    _bridge: Callable[[], BaseAttempt] | None = None
    """How code of the other colour sees this attempt, where it can."""

    def __init__(self, engine: Any, ticket: Ticket) -> None:  # noqa: ANN401 - of its own colour
        """What the ticket says; the engine brings what happens to the store."""
        self._engine = engine
        self._ticket: Final = ticket
        self._call: Final = ticket.call
        self._observers: Final[Observers] = engine.observers
        self._generation: Final = generation()
        self._ended = ticket.duplicate
        self._unnoted: Final[set[str]] = set()

    # Facts

    @property
    def key(self) -> str:
        """The key of the call."""
        return self._call.key

    @property
    def scope(self) -> str | None:
        """The scope of the call."""
        return self._call.scope

    @property
    def duplicate(self) -> bool:
        """Whether the call was made before: there is a result and nothing to do."""
        return self._ticket.duplicate

    @property
    def number(self) -> int:
        """Which attempt this is, the first being 1."""
        return self._ticket.record.attempt

    @property
    def uncertain(self) -> bool:
        """Whether an earlier attempt ended without a definite outcome."""
        return self._ticket.record.uncertain

    @property
    def lost(self) -> bool:
        """Whether another attempt is known to own the record by now; it pays to stop then."""
        return self._ticket.lost

    @property
    def protected(self) -> bool:
        """Whether a store knows of this attempt."""
        return self._ticket.protected

    @property
    def record(self) -> Record:
        """The record as this attempt saw it last."""
        return self._ticket.record

    @property
    def notes(self) -> dict[str, Any]:
        """The facts that this attempt and those before it have noted."""
        return dict(self._read_notes().facts)

    @property
    def token(self) -> int:
        """A number larger than that of every earlier attempt, for systems that can fence."""
        self._must_run("token")
        return self._ticket.record.token

    @property
    def result(self) -> Any:  # noqa: ANN401 - as the code completed it
        """The result of the call: what was completed here, or a copy of the first one.

        On a duplicate of a kept failure this raises that failure.
        """
        if self._ticket.duplicate:
            return served(self._ticket.record, self._call)
        if self._value is _NOTHING:
            msg = f"{self._call.name} has no result before complete()"
            raise ConfigurationError(msg)
        return self._value

    def downstream_key(self, name: str) -> str:
        """A key for the effect `name`, the same in every attempt at this call."""
        if not isinstance(name, str) or not name:
            msg = "downstream_key needs the name of the effect, for example 'charge'"
            raise ConfigurationError(msg)
        self._must_run("downstream_key")
        return self._call.downstream_key(name)

    def keep(self) -> None:
        """The response to this HTTP request is kept, whatever its status."""
        self._must_run("keep")
        if self._keeps is None:
            msg = "keep is for handlers of HTTP requests; elsewhere pass keep=(MyError,) to once"
            raise ConfigurationError(msg)
        self._keeps = True

    # Rules of use

    def _must_run(self, what: str) -> None:
        if self._ticket.duplicate:
            msg = f"{what} is for code that runs, but {self._call.name} is a duplicate"
            raise ConfigurationError(msg)
        if self._ended:
            msg = f"{what} was used after {self._call.name} had ended"
            raise ConfigurationError(msg)

    def _become_current(self) -> None:
        self._outer = running.get()
        self._reset = running.set(self)
        if self._call.trace is not None:
            self._call.trace.attach()

    def _stop_being_current(self) -> None:
        try:
            running.reset(self._reset)
        except ValueError:  # closed from another context, in which it never was the current one
            return
        if self._call.trace is not None:
            self._call.trace.detach()

    # Notes and steps

    def _read_notes(self) -> Notes:
        if self._notes is None:
            try:
                self._notes = read_notes(self._ticket.record.noted)
            except UnreadableBytesError as error:
                msg = f"the notes of {self._call.name} cannot be read: {error}"
                raise UnreadableError(msg, key=self.key, scope=self.scope) from None
        return self._notes

    def _noting(self, change: Callable[[Notes], Notes]) -> Note:
        """The request that keeps the changed notes. What is noted later holds all of it."""
        with self._noting_one_by_one():
            self._notes = change(self._read_notes())
            self._revision = max(self._revision, self._ticket.record.revision) + 1
            return self._call.note(self._ticket.record, self._notes.encode(), self._revision)

    def _noting_one_by_one(self) -> threading.Lock:
        """The lock of this attempt's notes, made by whoever notes first."""
        lock: threading.Lock = vars(self).setdefault("_lock", threading.Lock())
        return lock

    def _noted(self, verdict: Verdict) -> None:
        if verdict is not Verdict.DONE:
            self._ticket.lost = True
            raise lost(self._call)

    def _begin_step(self, name: str) -> bool:
        """Whether the step was done by an earlier attempt."""
        self._must_run("step")
        if not isinstance(name, str) or not name:
            msg = "a step needs a name, for example step('load', load, path)"
            raise ConfigurationError(msg)
        if self._begun is None:
            self._begun = set()
        if name in self._begun:
            msg = f"{self._call.name} has a step {name!r} already; each step needs its own name"
            raise ConfigurationError(msg)
        self._begun.add(name)
        return name in self._read_notes().steps

    def _step_result(self, name: str, codec: Codec) -> Any:  # noqa: ANN401 - as the step is annotated
        data = self._read_notes().steps[name]
        if data is None:
            msg = f"the step {name!r} of {self._call.name} was done, but its result was not kept"
            raise ResultNotKeptError(msg, key=self.key, scope=self.scope)
        try:
            return codec.decode(data)
        except UnreadableBytesError as error:
            msg = f"the step {name!r} of {self._call.name} cannot be read: {error}"
            raise UnreadableError(msg, key=self.key, scope=self.scope) from None

    def _step_noting(self, name: str, value: object, codec: Codec) -> Note:
        try:
            data = codec.encode(value)
        except NotKeepableError as error:
            data = None
            self._not_kept(f"step {name!r}: {error}", codec)
        return self._noting(lambda notes: notes.with_step(name, data))

    # The end

    def _settling(self, value: object) -> Settle:
        """The request that keeps the value, or that it is done where the value cannot be kept."""
        call = self._call
        data: bytes | None = None
        if self._ticket.renewal is None and not self._ticket.protected:
            return call.settle(self._ticket.record, "completed")  # switched off: nobody reads it
        try:
            data = call.codec.encode(value)
        except NotKeepableError as error:
            self._not_kept(str(error), call.codec)
        if data is not None and len(data) > call.terms.max_result:
            self._not_kept(f"{len(data)} bytes are more than max_result", call.codec)
            data = None
        return call.settle(self._ticket.record, "completed", result=data)

    def _not_kept(self, why: str, codec: Codec) -> None:
        hint = "" if codec.typed else "; annotate what the function returns so that it can be"
        self._observers.tell("not_kept", self._call, self.number, detail=why + hint)

    def _settled(self, value: object, recorded: bool) -> None:  # noqa: FBT001 - what settle said
        """The value stands, unless it must be told that nobody could be told of it."""
        self._ended = True
        if not recorded and not self._call.terms.fail_open:
            msg = (
                f"{self._call.name} was done, but the store could not be told yet; recording goes "
                f"on in the background: ask again with the same key"
            )
            raise NotRecordedError(msg, key=self.key, scope=self.scope, result=value)
        self._value = value

    def _releasing(self, why: str, *, uncertain: bool) -> Release:
        """The request that frees the key, or holds it where nobody knows how it ended."""
        self._must_run("release")
        self._ended = True
        hold = uncertain and self._call.terms.hold and self._call.reconcile is None
        data = why.encode() or None
        return self._call.release(self._ticket.record, data, uncertain=uncertain, hold=hold)

    def _failing(self, error: BaseException, data: bytes) -> Settle | Release:
        """The request that ends the attempt after its code raised `error`."""
        self._ended = True
        ending = after_error(error, self._call, unsure=bool(self._unnoted))
        record = self._ticket.record
        if isinstance(ending, Fail):
            return self._call.settle(record, "failed", error=data)
        return self._call.release(record, data, uncertain=ending.uncertain, hold=ending.hold)
