"""Celery 5 on Redis: late acknowledgement, and a visibility time-out that ends when a test says."""

import gc
import os
import sys
from functools import partial
from typing import Any

import redis
from celery import Celery  # type: ignore[import-untyped]  # celery has no types
from celery.exceptions import (  # type: ignore[import-untyped]  # as above
    TimeoutError as NoResultError,
)

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.celery import OnceTask, once_task
from tests.jobs import queues
from tests.jobs.celery_work import register
from tests.jobs.work import JOBS, NotYetError, opened
from tests.patience import PATIENCE


def make(url: str, once: Once, **settings: Any) -> Celery:
    """An app with every job as a task, half of them through the decorator."""
    app = Celery("jobs", broker=url, backend=url, set_as_current=False)
    app.task = partial(app.task, shared=False)  # not in the apps of other tests
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": 3600,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
        **settings,
    )
    retrying = {"autoretry_for": (NotYetError,), "retry_kwargs": {"countdown": 0.05}}
    for name, kind in JOBS.items():
        if kind.until:
            app.task(
                kind.function,
                name=name,
                base=OnceTask,
                once=once,
                once_key=kind.key,
                once_options=kind.options,
                once_enqueue=kind.key,
                once_until=kind.until,
                **retrying,
            )
        else:
            protected = once_task(once, kind.key, **kind.options)(kind.function)
            app.task(protected, name=name, **retrying)
    register(app, once)
    app.finalize()
    return app


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self.app = make(url, once)
        self._broker: Any = redis.Redis.from_url(url)

    def words(self) -> list[str]:
        module = "tests.jobs.queues.celery"
        options = ("--concurrency=1", "--without-mingle", "--without-gossip", "--without-heartbeat")
        return [
            sys.executable,
            "-m",
            "celery",
            "-A",
            module,
            "worker",
            "--loglevel=WARNING",
            *options,
            "-n",
            f"{os.urandom(4).hex()}@localhost",
        ]  # fmt: skip - it reads as the command line that it is

    def put(self, job: str, *args: Any) -> str:
        # By name, so that what was enqueued before does not matter.
        sent: str = self.app.send_task(job, args).id
        return sent

    def put_twice(self, job: str, *args: Any) -> str:
        task_id = os.urandom(8).hex()
        for _ in range(2):
            self.app.send_task(job, args, task_id=task_id)
        return task_id

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        found = self.app.tasks[job].enqueue_once(*args)
        return Enqueued(found.handle.id, found.duplicate)

    def result(self, job_id: str) -> Any:
        sent = self.app.AsyncResult(job_id)
        try:
            return sent.get(timeout=PATIENCE, interval=0.01)
        except NoResultError:
            raise
        except Exception as error:
            raise queues.FailedError(f"{type(error).__name__}: {error}") from error

    def revive(self, job_id: str) -> None:
        """Whatever a worker has not acknowledged has been so since 1970."""
        waiting = self._broker.zrange("unacked_index", 0, -1)
        assert waiting
        self._broker.zadd("unacked_index", dict.fromkeys(waiting, 0), xx=True)

    def close(self) -> None:
        self._broker.close()
        gc.collect()  # results that nobody waited for talk to the back end when they go
        self.app.backend.result_consumer.stop()
        self.app.close()


if "JOBS_BROKER" in os.environ:
    app = make(os.environ["JOBS_BROKER"], opened())
