"""Attempts: what user code sees of the call that it runs in, and `current()` to find it.

`Attempt` is for blocking code and `AsyncAttempt` for coroutines. Blocking code on a worker thread
of an async framework gets an `Attempt` too, which goes through the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from oncekey.core.record import Record
from oncekey.core.requests import Note, Release, Settle, Verdict
from oncekey.engine.engine_async import AsyncEngine
from oncekey.engine.run import Run
from oncekey.engine.run_async import AsyncRun
from oncekey.engine.run_base import BaseRun, running
from oncekey.engine.ticket import Ticket
from oncekey.errors import ConfigurationError

T = TypeVar("T")


class BaseAttempt:
    """One attempt at a call, or the settled record that answers it."""

    def __init__(self, run: Any) -> None:
        """Show this run, which is blocking or async as the attempt is."""
        self._run = run

    @property
    def key(self) -> str:
        """The key of the call."""
        key: str = self._run.call.key
        return key

    @property
    def scope(self) -> str | None:
        """The scope of the call."""
        scope: str | None = self._run.call.scope
        return scope

    @property
    def duplicate(self) -> bool:
        """Whether the call was made before: there is a result, and nothing to do."""
        duplicate: bool = self._run.ticket.duplicate
        return duplicate

    @property
    def number(self) -> int:
        """The number of the attempt. The first is 1."""
        return self.record.attempt

    @property
    def uncertain(self) -> bool:
        """Whether an earlier attempt ended without a definite outcome."""
        return self.record.uncertain

    @property
    def lost(self) -> bool:
        """Whether another attempt is known to own the record. The code should stop then."""
        lost: bool = self._run.ticket.lost
        return lost

    @property
    def protected(self) -> bool:
        """Whether the store knows of this attempt."""
        protected: bool = self._run.ticket.protected
        return protected

    @property
    def record(self) -> Record:
        """The record as this attempt saw it last."""
        record: Record = self._run.record
        return record

    @property
    def notes(self) -> dict[str, Any]:
        """The facts that this attempt and those before it have noted."""
        return dict(self._run.read_notes().facts)

    @property
    def token(self) -> int:
        """The fencing token: a number larger than that of every earlier attempt."""
        self._run.must_live("token")
        return self.record.token

    @property
    def result(self) -> Any:
        """The result of the call: the value completed here, or for a duplicate a copy of the first.

        For a duplicate of a kept failure this raises the failure.
        """
        return self._run.result

    def downstream_key(self, name: str) -> str:
        """Return a key for the effect `name`, the same in every attempt at this call."""
        if not isinstance(name, str) or not name:
            msg = "downstream_key needs the name of the effect, for example 'charge'"
            raise ConfigurationError(msg)
        self._run.must_live("downstream_key")
        key: str = self._run.call.downstream_key(name)
        return key

    def next_message(self) -> int:
        """Return the number of the next message that this attempt puts into an outbox, from 1 on.

        An outbox asks for it to give the message an id.
        """
        number: int = self._run.next_message()
        return number

    def keep(self) -> None:
        """Keep the response to this HTTP request, whatever its status."""
        self._run.must_live("keep")
        if self._run.keeps is None:
            msg = "keep is for handlers of HTTP requests; elsewhere pass keep=(MyError,) to once"
            raise ConfigurationError(msg)
        self._run.keeps = True


class Attempt(BaseAttempt):
    """One attempt at a call, or the settled record that answers it."""

    _run: Run

    def note(self, **facts: object) -> None:
        """Keep the facts, so that they survive a crash and reach the next attempt."""
        self._run.note(facts)

    def step(self, name: str, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run the step and keep its result. Return it, or the one an earlier attempt kept."""
        value: T = self._run.step(name, function, args, kwargs)
        return value

    def complete(self, value: object = None) -> None:
        """Complete the call. Duplicates get this value from now on."""
        self._run.complete(value)

    def release(self, why: str = "", *, uncertain: bool = False) -> None:
        """Free the key, as after an error: the next call runs.

        With `uncertain` the effect may have happened. The policy then decides, as after a crash.
        """
        self._run.release(why, uncertain=uncertain)

    def __enter__(self) -> Self:
        """Make this the current attempt."""
        self._run.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the attempt: completed, failed or released."""
        self._run.__exit__(kind, error, trace)


class AsyncAttempt(BaseAttempt):
    """One attempt at a call, or the settled record that answers it."""

    _run: AsyncRun

    async def note(self, **facts: object) -> None:
        """Keep the facts, so that they survive a crash and reach the next attempt."""
        await self._run.note(facts)

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
        """Run the step and keep its result. Return it, or the one an earlier attempt kept."""
        return await self._run.step(name, function, args, kwargs)

    async def complete(self, value: object = None) -> None:
        """Complete the call. Duplicates get this value from now on."""
        await self._run.complete(value)

    async def release(self, why: str = "", *, uncertain: bool = False) -> None:
        """Free the key, as after an error: the next call runs.

        With `uncertain` the effect may have happened. The policy then decides, as after a crash.
        """
        await self._run.release(why, uncertain=uncertain)

    async def __aenter__(self) -> Self:
        """Make this the current attempt."""
        await self._run.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the attempt: completed, failed or released."""
        await self._run.__aexit__(kind, error, trace)


def current() -> Attempt:
    """Return the current attempt, inside a protected function that blocks.

    In blocking code that a coroutine runs on a thread, return the attempt of that coroutine. Raise
    ConfigurationError if there is none, or if it is async: use `current_async`.
    """
    run = _running_here()
    if isinstance(run, AsyncRun) and run.loop is not None and not _on_a_loop():
        return Attempt(_RunOnLoop(run, run.loop))
    if not isinstance(run, Run):
        raise ConfigurationError("the running attempt is async; use current_async()")
    return attempt_of(run)


def current_async() -> AsyncAttempt:
    """Return the current attempt, inside a protected coroutine function.

    Raise ConfigurationError if there is none, or if it is blocking: use `current`.
    """
    run = _running_here()
    if not isinstance(run, AsyncRun):
        raise ConfigurationError("the running attempt is blocking; use current()")
    return attempt_of(run)


@overload
def attempt_of(run: Run) -> Attempt: ...
@overload
def attempt_of(run: AsyncRun) -> AsyncAttempt: ...
def attempt_of(run: BaseRun) -> Any:
    """Return the attempt that user code sees of the run, the same object each time."""
    if run.attempt is None:
        run.attempt = AsyncAttempt(run) if isinstance(run, AsyncRun) else Attempt(run)
    return run.attempt


def _running_here() -> BaseRun:
    run = running.get()
    if run is None or not run.lives:
        raise ConfigurationError(
            "no attempt is running here; call this inside a protected function"
        )
    return run


def _on_a_loop() -> bool:
    """Return whether an event loop runs in this thread, which must not block then."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# Async frameworks run blocking handlers on threads. The requests of such a handler to the store go
# through the event loop of the coroutine that waits for it.


class _RunOnLoop(Run):
    """An async run for blocking code on a thread. It shares the state of the async run."""

    def __init__(self, run: AsyncRun, loop: asyncio.AbstractEventLoop) -> None:
        self.__dict__ = run.__dict__
        self._through = _EngineOnLoop(run.engine, loop)

    @property
    def engine(self) -> Any:  # type: ignore[override]  # an engine in all that is asked of it
        """The engine of the loop. A property takes precedence over the shared `__dict__`."""
        return self._through


class _EngineOnLoop:
    """The async engine for blocking code: it runs each request on the loop and waits."""

    def __init__(self, engine: AsyncEngine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop

    def note(self, ticket: Ticket, ask: Note) -> Verdict:
        return self._wait(self._engine.note(ticket, ask))

    def settle(self, ticket: Ticket, ask: Settle) -> bool:
        return self._wait(self._engine.settle(ticket, ask))

    def leave(self, ticket: Ticket, ask: Release) -> bool:
        return self._wait(self._engine.leave(ticket, ask))

    def _wait(self, answer: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(answer, self._loop).result()
