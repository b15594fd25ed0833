"""What a relay asks of a target."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from threading import Lock
from time import monotonic
from typing import Any, Final, Protocol, runtime_checkable

from msgspec import MsgspecError, json

from oncekey.compat import call_blocking_async
from oncekey.outbox.errors import UndeliverableError
from oncekey.outbox.table import OutboxMessage

_TOO_LATE: Final = "it was too late to begin"
"""This process was stopped for a while, or its loop was blocked."""
_OUT_OF_REACH: Final = frozenset(
    {"ConnectionError", "OSError", "OutOfMemoryError", "ReadOnlyError", "TimeoutError"}
)


@runtime_checkable
class Target(Protocol):
    """Where messages are sent to.

    A target may have an attribute `pauses`: seconds after each failure of a message. It is then
    dead after one failure more than there are pauses, whatever the relay has for `max_tries`.

    It may have an attribute `windows` as well: seconds for which the broker recognises a message
    that is sent again, by the name of what keeps its messages. The relay says once where that is
    less than it may need.
    """

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> Sequence[BaseException | None]:
        """Send the messages. Return None for each that the target has confirmed, or an error.

        An `OSError`, as ConnectionError is one, and a TimeoutError mean that the target is out of
        reach: such tries do not count. `MessageRefusedError` means that the target has certainly
        not taken the message, and `UndeliverableError` that it never will. `deadline` is the time
        of `time.monotonic()` when the relay gives up; nothing may be begun after it.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. The next message opens new ones."""
        ...


async def one_by_one(
    publish: Callable[[OutboxMessage], Awaitable[object]],
    messages: Sequence[OutboxMessage],
    deadline: float,
) -> list[BaseException | None]:
    """Send all messages at the same time. Return what `Target.publish` returns.

    A little before the deadline those are given up that have no answer, so that the others have.
    """
    end = end_of(deadline)

    async def begin(message: OutboxMessage) -> None:
        if monotonic() >= end:
            raise TimeoutError(_TOO_LATE)
        await publish(message)

    tasks = [asyncio.create_task(begin(message)) for message in messages]
    if not tasks:
        return []
    try:
        _, late = await asyncio.wait(tasks, timeout=max(0.0, end - monotonic()))
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
    finally:
        for task in tasks:
            task.cancel()
    return [TimeoutError() if task.cancelled() else task.exception() for task in tasks]


async def called_with(message: OutboxMessage, function: Callable[[OutboxMessage], Any]) -> Any:
    """Call a function of the user with the message, on a thread unless it is a coroutine function.

    Return its value.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may be called as a coroutine
    ):
        return await function(message)
    found = await call_blocking_async(function, message)
    # It may look like a plain function, as `lambda message: send(message)` does.
    return await found if inspect.isawaitable(found) else found


async def in_turn(
    publish: Callable[[OutboxMessage], object],
    messages: Sequence[OutboxMessage],
    deadline: float,
    turn: Lock,
) -> list[BaseException | None]:
    """Send one message after the other on a thread, for a client that blocks.

    The client is asked by one thread at a time, which has `turn` then. Return what `Target.publish`
    returns. Once one finds the target out of reach, those behind it are not begun.
    """
    end = end_of(deadline)

    def send() -> list[BaseException | None]:
        answers: list[BaseException | None] = []
        if not turn.acquire(timeout=max(0.0, end - monotonic())):
            return [TimeoutError("the client is still busy")] * len(messages)
        try:
            for message in messages:
                error: BaseException | None = None
                try:
                    if monotonic() >= end:
                        raise TimeoutError(_TOO_LATE)  # noqa: TRY301 - as if the client had raised it
                    publish(message)
                except Exception as found:  # noqa: BLE001 - a client may raise anything; others flow
                    error = found
                answers.append(error)
                if isinstance(error, OSError):  # a TimeoutError is one, too
                    break
        finally:
            turn.release()
        return answers + [answers[-1]] * (len(messages) - len(answers))

    return await call_blocking_async(send)


def is_out_of_reach(error: BaseException | None) -> bool:
    """Return whether an error of some client says that its server cannot take anything now.

    Clients have classes of their own that are called ConnectionError, as redis-py has.
    """
    return any(kind.__name__ in _OUT_OF_REACH for kind in type(error).__mro__)


def end_of(deadline: float) -> float:
    """Return when the last message is given up, so that the answers of the others are known."""
    return deadline - min(0.5, max(0.0, deadline - monotonic()) / 10)


def job_arguments(message: OutboxMessage) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a job: a body that is a JSON array, an object or empty.

    Raise UndeliverableError for another one.
    """
    try:
        found = json.decode(message.body) if message.body else {}
    except MsgspecError as error:
        raise UndeliverableError(f"the arguments of a job must be JSON: {error}") from error
    if isinstance(found, list):
        return found, {}
    if isinstance(found, dict):
        return [], found
    msg = f"the arguments of a job are an array or an object, not {type(found).__name__}"
    raise UndeliverableError(msg)
