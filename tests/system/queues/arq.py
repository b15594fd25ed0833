"""arq on Redis: who has a job in progress is believed for five minutes, or until a test says so."""

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from arq import Retry, create_pool, func
from arq.connections import RedisSettings
from arq.constants import in_progress_key_prefix, result_key_prefix
from arq.jobs import Job

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.arq import enqueue_once, once_task
from tests.jobs import queues
from tests.jobs.context import as_coroutine
from tests.jobs.work import BY_ORDER, JOBS, NotYetError, opened
from tests.patience import PATIENCE


def retried(function: Callable[..., Any]) -> Callable[..., Any]:
    """arq tries only those again that say so."""

    @functools.wraps(function)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except NotYetError:
            raise Retry(defer=0.05) from None

    return coroutine


def protect(once: Once) -> dict[str, Callable[..., Any]]:
    return {
        name: once_task(once, kind.key, name=name, **kind.options)(as_coroutine(kind.function))
        for name, kind in JOBS.items()
    }


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self.loop = asyncio.new_event_loop()
        self.functions = protect(once)
        self.pool: Any = self._do(create_pool(RedisSettings.from_dsn(url)))

    def words(self) -> list[str]:
        return [sys.executable, "-m", "arq", "tests.system.queues.arq.WorkerSettings"]

    def put(self, job: str, *args: Any) -> str:
        found: str = self._do(self.pool.enqueue_job(job, *args)).job_id
        return found

    def put_twice(self, job: str, *args: Any) -> str:
        """arq refuses an id that is in the queue or has a result."""
        first = self.put(job, *args)
        self.result(first)
        self._do(self.pool.delete(f"{result_key_prefix}{first}"))
        assert self._do(self.pool.enqueue_job(job, *args, _job_id=first)) is not None
        return first

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        until: Any = JOBS[job].until
        sending = enqueue_once(
            self.pool, self.functions[job], args, key=BY_ORDER, until=until, function_name=job
        )
        found = self._do(sending)
        return Enqueued(found.handle.job_id, found.duplicate)

    def result(self, job_id: str) -> Any:
        try:
            return self._do(Job(job_id, self.pool).result(timeout=PATIENCE, poll_delay=0.02))
        except Exception as error:
            raise queues.FailedError(f"{type(error).__name__}: {error}") from error

    def revive(self, job_id: str) -> None:
        self._do(self.pool.delete(f"{in_progress_key_prefix}{job_id}"))

    def close(self) -> None:
        self._do(self.pool.aclose())
        self._do(self.once.aclose())
        self.loop.close()

    def _do(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)


if "JOBS_BROKER" in os.environ:

    class WorkerSettings:
        """What `arq` reads."""

        functions = tuple(
            func(retried(one), name=name, max_tries=6) for name, one in protect(opened()).items()
        )
        redis_settings = RedisSettings.from_dsn(os.environ["JOBS_BROKER"])
        max_jobs = 1
        poll_delay = 0.05
