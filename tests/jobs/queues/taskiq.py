"""Taskiq on a stream of Redis: what no worker has acknowledged is delivered again on demand.

Jobs that ask for their attempt block, and run on a thread of the worker; the others are coroutines.
"""

import asyncio
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import redis
from taskiq import AsyncBroker, AsyncTaskiqTask, SimpleRetryMiddleware, TaskiqEvents, TaskiqState
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.taskiq import enqueue_once, once_task
from tests.jobs import queues
from tests.jobs.work import JOBS, NotYetError, charge, opened
from tests.patience import PATIENCE

IDLE = 3_600_000


def as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return coroutine


def make(url: str, once: Once) -> AsyncBroker:
    """A broker with every job as a task."""
    results: RedisAsyncResultBackend[Any] = RedisAsyncResultBackend(url)
    broker = RedisStreamBroker(url, idle_timeout=IDLE, xread_count=1, xread_block=500)
    retrying = SimpleRetryMiddleware(5, default_retry_label=True, types_of_exceptions=[NotYetError])
    made = broker.with_result_backend(results).with_middlewares(retrying)
    for name, kind in JOBS.items():
        function = as_coroutine(kind.function) if kind.function is charge else kind.function
        made.register_task(once_task(once, kind.key, **kind.options)(function), name)
    made.on_event(TaskiqEvents.WORKER_STARTUP)(hear_signals)
    return made


def hear_signals(_state: TaskiqState) -> None:
    """A signal wakes the event loop.

    Without it Taskiq hears of one only when its read from the stream returns, cancels the next read
    the moment it begins, which is lost, and goes on for ever.
    """
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, list)


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.broker = make(url, once)
        self._asked: Any = redis.Redis.from_url(url)
        self.await_(self.broker.startup())

    def await_(self, coroutine: Any) -> Any:
        """What the coroutine returns, on the loop of those who put jobs into the queue."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE)

    def words(self) -> list[str]:
        module = "tests.jobs.queues.taskiq:broker"
        options = ("--workers=1", "--max-async-tasks=1", "--log-level=WARNING")
        return [sys.executable, "-m", "taskiq", "worker", module, *options]

    def task(self, job: str) -> Any:
        return self.broker.find_task(job)

    def put(self, job: str, *args: Any) -> str:
        sent: str = self.await_(self.task(job).kiq(*args)).task_id
        return sent

    def put_twice(self, job: str, *args: Any) -> str:
        task_id = os.urandom(8).hex()
        for _ in range(2):
            self.await_(self.task(job).kicker().with_task_id(task_id).kiq(*args))
        return task_id

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        until: Any = JOBS[job].until
        found = self.await_(enqueue_once(self.task(job), until=until).kiq(*args))
        return Enqueued(found.handle.task_id, found.duplicate)

    def result(self, job_id: str) -> Any:
        sent: AsyncTaskiqTask[Any] = AsyncTaskiqTask(job_id, self.broker.result_backend)
        found = self.await_(sent.wait_result(check_interval=0.01, timeout=PATIENCE))
        if found.is_err:
            raise queues.FailedError(f"{type(found.error).__name__}: {found.error}")
        return found.return_value

    def revive(self, job_id: str) -> None:
        """Whatever waits for its acknowledgement has waited for too long.

        A worker looks for what others have left only after it got something to do itself.
        """
        waiting = self._asked.xpending_range("taskiq", "taskiq", "-", "+", 9)
        assert waiting
        for one in waiting:
            owner, message = one["consumer"], one["message_id"]
            self._asked.xclaim("taskiq", "taskiq", owner, 0, [message], idle=IDLE, justid=True)
        self.put("charge", f"nobody-{job_id}", 0)

    def close(self) -> None:
        self.await_(self.once.aclose())
        self.await_(self.broker.shutdown())
        self._asked.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


if "JOBS_BROKER" in os.environ:
    broker = make(os.environ["JOBS_BROKER"], opened())
