"""Procrastinate on PostgreSQL: functions of both colours. It keeps no results: the ledger does."""

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, RetryStrategy, SyncPsycopgConnector

from oncekey import Once
from oncekey.functions import is_async
from oncekey.jobs import Enqueued
from oncekey.jobs.procrastinate import enqueue_once, once_task
from tests.jobs import queues
from tests.jobs.context import as_blocking, as_coroutine, named
from tests.jobs.work import BY_ORDER, JOBS, NotYetError, ledger, opened
from tests.patience import until

RETRY = RetryStrategy(max_attempts=5, retry_exceptions=[NotYetError])
AGAIN = """
    UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, scheduled_at = NULL
    WHERE id = %s AND status = ANY (%s::procrastinate_job_status[])
"""


def told(function: Callable[..., Any]) -> Callable[..., Any]:
    """Write down what the job returned or raised, since Procrastinate does not."""

    def tell(context: Any, what: dict[str, Any]) -> None:
        ledger().set(f"result:{context.job.id}", json.dumps(what))

    def failed(error: Exception) -> dict[str, Any]:
        return {"failed": f"{type(error).__name__}: {error}"}

    @functools.wraps(function)
    async def coroutine(context: Any, **kwargs: Any) -> Any:
        try:
            tell(context, {"value": await function(context, **kwargs)})
        except Exception as error:
            tell(context, failed(error))
            raise

    @functools.wraps(function)
    def blocking(context: Any, **kwargs: Any) -> Any:
        try:
            tell(context, {"value": function(context, **kwargs)})
        except Exception as error:
            tell(context, failed(error))
            raise

    return coroutine if is_async(function) else blocking


def make(connector: Any, once: Once) -> App:
    """An app with every job as a task. Every other job blocks."""
    made = App(connector=connector)

    def add(name: str, scope: str, function: Callable[..., Any]) -> None:
        protected = once_task(once, JOBS[scope].key, name=scope, **JOBS[scope].options)(function)
        made.task(name=name, pass_context=True, retry=RETRY)(told(protected))

    for number, (name, kind) in enumerate(JOBS.items()):
        add(name, name, (as_blocking if number % 2 else as_coroutine)(kind.function))
    add("stall blocking", "stall", as_blocking(JOBS["stall"].function))
    return made


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        self.app = make(SyncPsycopgConnector(conninfo=url), once)
        self.app.open()
        self.app.schema_manager.apply_schema()
        self._connection = psycopg.connect(url, autocommit=True)

    def words(self) -> list[str]:
        module = "tests.system.queues.procrastinate.app"
        options = ("--concurrency=1", "--fetch-job-polling-interval=0.2")
        return [sys.executable, "-m", "procrastinate", "--app", module, "worker", *options]

    def put(self, job: str, *args: Any) -> str:
        given = named(JOBS[job.partition(" ")[0]].function, args)
        return str(self.app.tasks[job].defer(**given))

    def put_twice(self, job: str, *args: Any) -> str:
        """A job that has succeeded is put into the queue again."""
        first = self.put(job, *args)
        self.result(first)
        self._again(first, "succeeded")
        return first

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        rule: Any = JOBS[job].until
        given = named(JOBS[job].function, args)
        found = enqueue_once(self.app.tasks[job], given, key=BY_ORDER, until=rule)
        return Enqueued(str(found.handle), found.duplicate)

    def result(self, job_id: str) -> Any:
        ask = "SELECT status IN ('succeeded', 'failed') FROM procrastinate_jobs WHERE id = %s"
        until(lambda: self._connection.execute(ask, [job_id]).fetchone() == (True,))
        found = json.loads(str(ledger().get(f"result:{job_id}")))
        if "failed" in found:
            raise queues.FailedError(found["failed"])
        return found["value"]

    def revive(self, job_id: str) -> None:
        self._again(job_id, "doing")

    def close(self) -> None:
        self._connection.close()
        self.app.close()

    def _again(self, job_id: str, *states: str) -> None:
        assert self._connection.execute(AGAIN, [job_id, list(states)]).rowcount == 1


if "JOBS_BROKER" in os.environ:
    app = make(PsycopgConnector(conninfo=os.environ["JOBS_BROKER"]), opened())
