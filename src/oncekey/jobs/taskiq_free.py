"""Jobs that were deduplicated at enqueue: when they end, another one like them may be enqueued.

Whether a job has ended is known after Taskiq's own retrying, so a middleware looks at it there.
"""

from __future__ import annotations

from typing import Any

from taskiq import AsyncBroker, NoResultError, TaskiqMessage, TaskiqMiddleware, TaskiqResult

from oncekey.jobs.tag import HEADER, free_async, read_tag
from oncekey.once import Once


class OnceMiddleware(TaskiqMiddleware):
    """Jobs that were enqueued once are freed when they have ended.

    A broker whose tasks are protected gets one by itself. `once` is for tasks that are not.
    """

    def __init__(self, once: Once | None = None) -> None:
        """Where the records of tasks that are not protected are kept."""
        super().__init__()
        self._once = once

    async def post_execute(self, message: TaskiqMessage, result: TaskiqResult[Any]) -> None:
        """The job has ended, unless it is to be tried again: then it has no result yet."""
        tag = read_tag(message.labels.get(HEADER))
        if tag is None or isinstance(result.error, NoResultError):
            return
        task = self.broker.find_task(message.task_name)
        protection = getattr(task, "oncekey", None)
        once = self._once if protection is None else protection.once
        if once is not None:
            await free_async(once, tag, "failed" if result.is_err else "succeeded")


def free_in(broker: AsyncBroker) -> None:
    """What the broker's tasks have enqueued is freed."""
    if not any(isinstance(one, OnceMiddleware) for one in broker.middlewares):
        broker.add_middlewares(OnceMiddleware())
