"""Attempts: what code that runs sees of its call, in both colours and from worker threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar, Token
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, overload

from msgspec import Struct

from oncekey.compat import generation, invoke, invoke_async, running_loop
from oncekey.core.call import Call
from oncekey.core.codec import Codec, NotKeepableError, UnreadableBytesError, codec_of, encode_error
from oncekey.core.decide import Fail, after_error, lost, served
from oncekey.core.record import Notes, Record, read_notes
from oncekey.core.requests import Note, Release, Settle, Verdict
from oncekey.engine.engine import Engine
from oncekey.engine.engine_async import AsyncEngine
from oncekey.engine.ticket import Ticket, unprotected
from oncekey.errors import ConfigurationError, NotRecordedError, ResultNotKeptError, UnreadableError
from oncekey.observe import Observers

# What both colours of an attempt share: its facts, its notes and its rules of use.


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


# Which attempt is running here, and that none runs inside of itself.


AnyAttempt = TypeVar("AnyAttempt", bound=BaseAttempt)


def forbid_nesting(call: Call, observers: Observers) -> None:
    """A call inside of itself would wait for itself: it is refused at once.

    `observers` stands for the store: every `Once` has its own.
    """
    outer = running.get()
    while outer is not None:
        if (
            outer._call.identity == call.identity  # noqa: SLF001 - how attempts see each other
            and outer._observers is observers  # noqa: SLF001 - how attempts see each other
            and not outer._ended  # noqa: SLF001 - how attempts see each other
            and outer._generation == generation()  # noqa: SLF001 - how attempts see each other
        ):
            msg = f"{call.name} is called from inside itself; call the plain function instead"
            raise ConfigurationError(msg)
        outer = outer._outer  # noqa: SLF001 - how attempts see each other


def current_of(kind: type[AnyAttempt], other: str) -> AnyAttempt:
    """The running attempt, which must be of this colour."""
    attempt = running.get()
    if attempt is None or attempt._ended or attempt._generation != generation():  # noqa: SLF001 - how attempts see each other
        msg = "no attempt is running here; call this inside a protected function"
        raise ConfigurationError(msg)
    if not isinstance(attempt, kind) and attempt._bridge is not None and not _on_a_loop():  # noqa: SLF001 - how attempts see each other
        attempt = attempt._bridge()  # noqa: SLF001 - how attempts see each other
    if not isinstance(attempt, kind):
        msg = f"the running attempt is of the other colour; use {other}()"
        raise ConfigurationError(msg)
    return attempt


def _on_a_loop() -> bool:
    """Whether this is a coroutine's thread, which must not block."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# An attempt, as code that blocks sees it.


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


# An attempt, as a coroutine sees it.


class AsyncAttempt(BaseAttempt):
    """One attempt at a call, or the settled record that answers it."""

    _engine: AsyncEngine

    async def note(self, **facts: object) -> None:
        """The facts survive a crash and are handed to the next attempt."""
        self._must_run("note")
        ask = self._noting(lambda notes: notes.with_facts(facts))
        self._noted(await self._engine.note(self._ticket, ask))

    @overload
    async def step(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> T: ...
    @overload
    async def step(
        self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> T: ...
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """The result of the step, which is not done again by a later attempt."""
        codec = codec_of(function)
        if self._begin_step(name):
            kept = self._step_result(name, codec)
            return kept  # noqa: RET504 - its twin names the type
        value = await invoke_async(function, *args, **kwargs)
        ask = self._step_noting(name, value, codec)
        self._unnoted.add(name)  # it is done, and the next attempt would not know
        self._noted(await self._engine.note(self._ticket, ask))
        self._unnoted.discard(name)
        return value

    async def complete(self, value: object = None) -> None:
        """The call is done, and duplicates get this value from now on."""
        self._must_run("complete")
        self._settled(value, await self._engine.settle(self._ticket, self._settling(value)))

    async def release(self, why: str = "", *, uncertain: bool = False) -> None:
        """The key is free again, as after an error: the next call runs.

        `uncertain` says that the effect may have happened: then the policy decides, as after a
        crash.
        """
        await self._engine.leave(self._ticket, self._releasing(why, uncertain=uncertain))

    async def _fail(self, error: BaseException) -> bool:
        """The call ended with this error; whether another attempt's answer stands instead."""
        ask = self._failing(error, encode_error(error))
        if not isinstance(ask, Settle):
            if isinstance(error, GeneratorExit):  # who is being closed must not wait any more
                self._engine.leave_later(self._ticket, ask)
            else:
                await self._engine.leave(self._ticket, ask)
            return False
        await self._engine.settle(self._ticket, ask)
        return self._ticket.duplicate

    async def __aenter__(self) -> Self:
        """From here on this is the current attempt."""
        self._become_current()
        return self

    async def __aexit__(
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
                await self.complete(None)
            else:
                await self._fail(error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Nobody here waits for it or renews its lease, even if it was cut off before it ended."""
        if not self._ended:
            self._engine.let_go(self._ticket)


async def enter_async(engine: AsyncEngine, call: Call, *, active: bool) -> AsyncAttempt:
    """The attempt at a call, running or answered; it is not current yet."""
    return AsyncAttempt(engine, await admit_async(engine, call, active=active))


def admit_async(engine: AsyncEngine, call: Call, *, active: bool) -> Awaitable[Ticket]:
    """The right to run the call, or the record that answers it.

    Without protection it runs, and no store hears of it.
    """
    if not active:
        admitted: Awaitable[Ticket] = invoke_async(unprotected, call)
        return admitted
    forbid_nesting(call, engine.observers)
    return engine.enter(call)


async def perform_async(  # noqa: PLR0913 - a call, a function and all that it is called with
    engine: AsyncEngine,
    call: Call,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    active: bool,
) -> Outcome[Any]:
    """The outcome of the function, which ran now or before."""
    ticket = await admit_async(engine, call, active=active)
    value = await run_async(engine, ticket, function, args, kwargs)
    return Outcome(value, ticket.duplicate, call.key, ticket.record.attempt)


async def run_async(
    engine: AsyncEngine,
    ticket: Ticket,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:  # noqa: ANN401 - whatever the function returns
    """What the function returned, now or before."""
    if ticket.duplicate:
        return served(ticket.record, ticket.call)
    attempt = AsyncAttempt(engine, ticket)
    attempt._become_current()  # noqa: SLF001 - the same module
    try:
        value = await invoke_async(function, *args, **kwargs)
    except BaseException as error:
        if attempt._ended or not await attempt._fail(error):  # noqa: SLF001 - the same module
            raise
    else:
        if not attempt._ended:  # noqa: SLF001 - the same module
            ask = attempt._settling(value)  # noqa: SLF001 - the same module
            attempt._settled(value, await engine.settle(ticket, ask))  # noqa: SLF001 - the same module
    finally:
        attempt._stop_being_current()  # noqa: SLF001 - the same module
        attempt._let_go()  # noqa: SLF001 - the same module
    return attempt.result


def current_async() -> AsyncAttempt:
    """The attempt whose code this is, inside a protected coroutine function."""
    return current_of(AsyncAttempt, "current")


# How blocking code on a thread sees the attempt of the coroutine that waits for it.
#
# Frameworks of coroutines run blocking handlers on threads. `current()` gives them the attempt all
# the same; what it tells the store goes through the event loop.


def bridge(attempt: AsyncAttempt) -> None:
    """Blocking code that the running loop has sent to a thread may ask for the attempt."""
    loop = running_loop()
    attempt._bridge = partial(_SeenFromThread, attempt, loop)  # noqa: SLF001 - its other end


class _SeenFromThread(Attempt):
    """The same attempt: whatever is noted or ended here is noted and ended there."""

    _loop: asyncio.AbstractEventLoop

    def __init__(self, attempt: AsyncAttempt, loop: asyncio.AbstractEventLoop) -> None:
        self.__dict__ = attempt.__dict__  # one state, seen from two sides
        self._loop = loop

    @property
    def _engine(self) -> Any:  # type: ignore[override]  # noqa: ANN401 - an engine in all that is asked of it
        """A property comes before what the shared state holds under this name."""
        return _ThroughLoop(self.__dict__["_engine"], self._loop)


class _ThroughLoop:
    """The engine of coroutines, for code that blocks."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop

    def note(self, ticket: Ticket, ask: Note) -> Verdict:
        return self._wait(self._engine.note(ticket, ask))

    def settle(self, ticket: Ticket, ask: Settle) -> bool:
        return self._wait(self._engine.settle(ticket, ask))

    def leave(self, ticket: Ticket, ask: Release) -> None:
        self._wait(self._engine.leave(ticket, ask))

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()
