"""Any function as a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import called_with, one_by_one


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
        call = partial(called_with, function=self._function)
        return await one_by_one(call, messages, deadline)

    async def aclose(self) -> None:
        """Do nothing: it has no connections."""
