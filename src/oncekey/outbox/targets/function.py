"""Any function as a target."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from oncekey.compat import call_blocking_async
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import one_by_one


class FunctionTarget:
    """Calls a function with each message. A message is sent when the function returns.

    A coroutine function is awaited, another one runs in a thread. It must know a message again by
    its `id`: it is called twice when a relay dies after the call. A `ConnectionError` or
    `TimeoutError` that it raises does not count as a try; everything else does.
    """

    def __init__(self, function: Callable[[OutboxMessage], Any]) -> None:
        """Take the function."""
        self._function = function

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Call the function with each message."""
        return await one_by_one(self._call, messages, deadline)

    async def _call(self, message: OutboxMessage) -> None:
        function = self._function
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object may be called as a coroutine
        ):
            await function(message)
        else:
            await call_blocking_async(function, message)

    async def aclose(self) -> None:
        """Do nothing: it has no connections."""
