"""Huey on Redis. It delivers each task once, so that a test puts the task of a dead worker back."""

import os
import sys
from typing import Any

from huey import RedisHuey  # type: ignore[import-untyped]  # huey has no types
from huey.exceptions import TaskException  # type: ignore[import-untyped]  # as above

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.huey import enqueue_once, once_task
from tests.jobs import queues
from tests.jobs.work import BY_ORDER, JOBS, opened
from tests.patience import PATIENCE


def make(url: str, once: Once) -> RedisHuey:
    """A queue with every job as a task."""
    huey = RedisHuey("jobs", url=url, read_timeout=1, store_intermediate_errors=False)
    for name, kind in JOBS.items():
        protected = once_task(once, kind.key, name=name, **kind.options)(kind.function)
        task = huey.task(name=name, context=True, retries=5, retry_delay=0)(protected)
        setattr(huey, f"task_{name}", task)
    return huey


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self.huey = make(url, once)
        self.sent: dict[str, Any] = {}

    def words(self) -> list[str]:
        consumer = [sys.executable, "-m", "huey.bin.huey_consumer", "tests.jobs.queues.huey.huey"]
        options = ("--workers=1", "--delay=0.05", "--max-delay=0.1", "--quiet")
        return [*consumer, *options]

    def put(self, job: str, *args: Any) -> str:
        return self._send(getattr(self.huey, f"task_{job}").s(*args))

    def put_twice(self, job: str, *args: Any) -> str:
        task = getattr(self.huey, f"task_{job}").s(*args)
        self._send(task)
        return self._send(task)

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        until: Any = JOBS[job].until
        task = getattr(self.huey, f"task_{job}")
        found = enqueue_once(task, args, key=BY_ORDER, until=until)
        self.sent.setdefault(found.handle.id, task.s(*args, id=found.handle.id))
        return Enqueued(found.handle.id, found.duplicate)

    def result(self, job_id: str) -> Any:
        wait = {"blocking": True, "timeout": PATIENCE, "backoff": 1, "max_delay": 0.05}
        try:
            return self.huey.result(job_id, preserve=True, **wait)
        except TaskException as error:
            raise queues.FailedError(str(error)) from error

    def revive(self, job_id: str) -> None:
        self.huey.enqueue(self.sent[job_id])

    def close(self) -> None:
        self.huey.storage.pool.disconnect()

    def _send(self, task: Any) -> str:
        self.huey.enqueue(task)
        self.sent[task.id] = task
        found: str = task.id
        return found


if "JOBS_BROKER" in os.environ:
    huey = make(os.environ["JOBS_BROKER"], opened())
