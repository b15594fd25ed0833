"""RQ 2: a worker that runs jobs in its own process, and one that forks for each."""

import itertools
import os
import sys
from typing import Any

import redis
from rq import Queue as NativeQueue
from rq import Retry
from rq.job import Job

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.rq import enqueue_once, once_job
from tests.jobs import queues
from tests.jobs.rq_work import MORE
from tests.jobs.work import BY_ORDER, JOBS, opened
from tests.patience import until

JOBS = {**JOBS, **MORE}
FAR = 4_000_000_000


def make(once: Once) -> None:
    """Every job is a function of this module, where a worker looks for it."""
    for name, kind in JOBS.items():
        protected = once_job(once, kind.key, name=name, **kind.options)(kind.function)
        protected.__module__, protected.__qualname__ = __name__, name
        globals()[name] = protected


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        make(once)
        self.client = redis.Redis.from_url(url)
        self.native = NativeQueue("jobs", connection=self.client)
        self.forking = NativeQueue("forking", connection=self.client)
        self._kinds = itertools.cycle(
            [("rq.SimpleWorker", "jobs"), ("rq.Worker", "jobs", "forking")]
        )

    def words(self) -> list[str]:
        return self.command(*next(self._kinds))

    def command(self, kind: str, *names: str) -> list[str]:
        module = "tests.jobs.queues.rq"  # as settings it is imported before any fork
        options = ("--quiet", "--worker-class", kind, "--url", self.url, "--config", module)
        return [sys.executable, "-m", "rq.cli", "worker", *options, *names]

    def put(self, job: str, *args: Any) -> str:
        return self.send(job, *args).id

    def put_twice(self, job: str, *args: Any) -> str:
        found = self.send(job, *args)
        return self.send(job, *args, job_id=found.id).id

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        until: Any = JOBS[job].until
        found = enqueue_once(self.native, globals()[job], args, key=BY_ORDER, until=until)
        return Enqueued(found.handle.id, found.duplicate)

    def send(self, job: str, *args: Any, **options: Any) -> Job:
        given = {"retry": Retry(max=5), **options}
        return self.native.enqueue(f"{__name__}.{job}", args=args, **given)

    def result(self, job_id: str) -> Any:
        job = Job.fetch(job_id, self.client)
        until(lambda: job.is_finished or job.is_failed, job.get_status)
        found: Any = job.latest_result()
        if found.type is not found.Type.SUCCESSFUL:
            raise queues.FailedError(found.exc_string or found.type.name)
        return found.return_value

    def revive(self, job_id: str) -> None:
        # What a worker does every ten minutes, for jobs that nobody has claimed for two.
        self.native.started_job_registry.cleanup(FAR)

    def close(self) -> None:
        self.client.close()


if "JOBS_BROKER" in os.environ:
    make(opened())
