"""What a relay asks of a target."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from oncekey.compat import call_blocking_async
from oncekey.outbox.table import OutboxMessage


@runtime_checkable
class Target(Protocol):
    """Where messages are sent to.

    A target may have an attribute `pauses`: seconds after each failure of a message. It is then
    dead after one failure more than there are pauses, whatever the relay has for `max_tries`.
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
    end = deadline - min(0.5, max(0.0, deadline - monotonic()) / 10)

    async def begin(message: OutboxMessage) -> None:
        left = end - monotonic()
        if left <= 0:  # this process was stopped for a while, or its loop was blocked
            raise TimeoutError("it was too late to begin")
        async with asyncio.timeout(left):
            await publish(message)

    answers = await asyncio.gather(*map(begin, messages), return_exceptions=True)
    return [one if isinstance(one, BaseException) else None for one in answers]


async def called_with(message: OutboxMessage, function: Callable[[OutboxMessage], Any]) -> Any:
    """Call a function of the user with the message, on a thread unless it is a coroutine function.

    Return its value.
    """
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object may be called as a coroutine
    ):
        return await function(message)
    return await call_blocking_async(function, message)
