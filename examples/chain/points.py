"""Moments at which a worker dies with SIGKILL, so that a test need not hope to hit them."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from oncekey.outbox import OutboxMessage
from oncekey.outbox.targets import Target

POINTS: Final = ("before publish", "after publish", "before commit", "after commit")


class Points:
    """Where this process dies: `before publish:3` is the third time that it comes there."""

    def __init__(self, deadly: Iterable[str] = ()) -> None:
        split = (one.rpartition(":") for one in deadly)
        self._deadly = {(point, int(count)) for point, _, count in split}
        self._seen: Counter[str] = Counter()

    def reach(self, point: str) -> None:
        """Die, if it is time to."""
        self._seen[point] += 1
        if (point, self._seen[point]) in self._deadly:
            os.kill(os.getpid(), signal.SIGKILL)


class Watched:
    """A target with a moment before and one after it has taken messages."""

    def __init__(self, target: Target, points: Points) -> None:
        self._target = target
        self._points = points

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> Sequence[BaseException | None]:
        """Send the messages, as the target does."""
        self._points.reach("before publish")
        answers = await self._target.publish(messages, deadline)
        self._points.reach("after publish")
        return answers

    async def aclose(self) -> None:
        """Close the target."""
        await self._target.aclose()
