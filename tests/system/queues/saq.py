"""SAQ on Redis: functions of both colours; jobs of a dead worker come back when a test says so."""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from saq import CronJob
from saq import Queue as NativeQueue
from saq.job import Status

from oncekey import Once, current_async
from oncekey.jobs import Enqueued
from oncekey.jobs.saq import enqueue_once, once_task
from tests.jobs import queues
from tests.jobs.context import as_blocking, as_coroutine, named
from tests.jobs.work import BY_ORDER, JOBS, NotYetError, effect, opened
from tests.patience import until

OPTIONS: dict[str, Any] = {"retries": 6, "timeout": 3600}


def protect(once: Once) -> dict[str, Callable[..., Any]]:
    """Every other job blocks."""
    made = {}
    for number, (name, kind) in enumerate(JOBS.items()):
        function = as_blocking(kind.function) if number % 2 else as_coroutine(kind.function)
        made[name] = once_task(once, kind.key, name=name, **kind.options)(function)
    return made


EVERY_SECOND = "* * * * * *"


async def tick(_ctx: Any) -> None:
    """Each round is tried twice."""
    if current_async().number == 1:
        raise NotYetError
    effect("every second", "tick")


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self.loop = asyncio.new_event_loop()
        self.functions = protect(once)
        self.native = NativeQueue.from_url(url)
        self._do(self.native.connect())

    def words(self) -> list[str]:
        return [sys.executable, "-m", "saq", "tests.system.queues.saq.settings"]

    def put(self, job: str, *args: Any) -> str:
        given = named(JOBS[job].function, args)
        found: str = self._do(self.native.enqueue(job, **OPTIONS, **given)).key
        return found

    def put_twice(self, job: str, *args: Any) -> str:
        """SAQ refuses a key that is in the queue."""
        first = self.put(job, *args)
        self.result(first)
        again = self.native.enqueue(job, key=first, **OPTIONS, **named(JOBS[job].function, args))
        assert self._do(again) is not None
        return first

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        rule: Any = JOBS[job].until
        given = named(JOBS[job].function, args)
        sending = enqueue_once(
            self.native,
            self.functions[job],
            given,
            key=BY_ORDER,
            until=rule,
            function_name=job,
            **OPTIONS,
        )
        found = self._do(sending)
        return Enqueued(found.handle.key, found.duplicate)

    def result(self, job_id: str) -> Any:
        job = self._do(self.native.job(job_id))

        def completed() -> bool:
            self._do(
                job.refresh()
            )  # to wait for its message may be too late: it may have been sent
            return bool(job.completed)

        until(completed)
        if job.status is not Status.COMPLETE:
            raise queues.FailedError(job.error)
        return job.result

    def revive(self, job_id: str) -> None:
        job = self._do(self.native.job(job_id))
        self._do(job.retry("its worker is dead"))

    def close(self) -> None:
        self._do(self.native.disconnect())
        self._do(self.once.aclose())
        self.loop.close()

    def _do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)


if "JOBS_BROKER" in os.environ:
    settings = {
        "queue": NativeQueue.from_url(os.environ["JOBS_BROKER"]),
        "functions": list(protect(opened()).items()),
        "cron_jobs": [CronJob(once_task(opened())(tick), cron=EVERY_SECOND, retries=2)],
        "concurrency": 1,
    }
