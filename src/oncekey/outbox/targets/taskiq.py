"""Taskiq: a message becomes a job, which is sent when the broker has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from oncekey.extras import needing
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import is_out_of_reach, job_arguments, one_by_one


class TaskiqTasks:
    """Sends jobs to the tasks that are named by the destination.

    The body is a JSON array with the arguments, or an object with named ones. The job has the id of
    the message, so that `once_task` knows a second one by its default key. The labels of a task are
    sent if it is declared where the relay runs.
    """

    def __init__(self, broker: Any) -> None:
        """Take the broker. It is started with the first job, and shut down in the end."""
        with needing("taskiq", "jobs of Taskiq"):
            import taskiq  # noqa: F401 - fails here rather than in the relay
        self._broker = broker
        self._starting = asyncio.Lock()
        self._started = False

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the jobs. Return None for each that the broker has, or an error."""
        try:
            async with self._starting:
                if not self._started:
                    await self._broker.startup()
                    self._started = True
        except Exception as error:
            raise ConnectionError(f"the broker of Taskiq cannot be started: {error!r}") from error
        return await one_by_one(self._send, messages, deadline)

    async def aclose(self) -> None:
        """Shut the broker down. The next job starts it again."""
        if self._started:
            self._started = False
            await self._broker.shutdown()

    async def _send(self, message: OutboxMessage) -> None:
        from taskiq.exceptions import SendTaskError
        from taskiq.kicker import AsyncKicker

        args, kwargs = job_arguments(message)
        task = self._broker.find_task(message.to)
        labels = {} if task is None else dict(task.labels)
        kicker: Any = AsyncKicker(message.to, self._broker, labels)
        try:
            await kicker.with_task_id(message.id).kiq(*args, **kwargs)
        except SendTaskError as error:
            cause = error.__cause__ or error
            if is_out_of_reach(cause):
                raise ConnectionError(f"the broker of Taskiq cannot be used: {cause!r}") from cause
            raise cause from None
