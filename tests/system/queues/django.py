"""Django Tasks in a database: nobody runs a task again, so that the test does what people would."""

import importlib
import os
import sys
import urllib.parse
from typing import Any

import django  # type: ignore[import-untyped]  # django has no types
from django.conf import settings  # type: ignore[import-untyped]  # as above
from django.core.management import (  # type: ignore[import-untyped]  # as above
    call_command,
    execute_from_command_line,
)

from oncekey import Once
from oncekey.jobs import Enqueued
from oncekey.jobs.django import enqueue_once, once_task
from tests.jobs import queues
from tests.jobs.context import as_blocking, as_coroutine
from tests.jobs.work import BY_ORDER, JOBS, opened
from tests.patience import until


def configure(url: str) -> None:
    """Let Django keep tasks in the database at the URL."""
    where = urllib.parse.urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": where.path.strip("/"),
        "HOST": where.hostname,
        "PORT": where.port,
        "USER": where.username,
        "PASSWORD": where.password,
    }
    backend = {"BACKEND": "django_tasks_db.DatabaseBackend"}
    apps = ["django_tasks_db"]
    settings.configure(
        DATABASES={"default": database}, TASKS={"default": backend}, INSTALLED_APPS=apps
    )
    django.setup()


def tasks() -> Any:
    """Return Django Tasks: a package of their own before Django 6."""
    return importlib.import_module("django.tasks" if django.VERSION >= (6,) else "django_tasks")


def make(once: Once) -> None:
    """Every job is a task of this module, where a worker looks for it. Every other one blocks."""
    task = tasks().task
    for number, (name, kind) in enumerate(JOBS.items()):
        function = (as_blocking if number % 2 else as_coroutine)(kind.function)
        protected = once_task(once, kind.key, name=name, **kind.options)(function)
        protected.__module__, protected.__name__ = "tests.system.queues.django", name
        protected.__qualname__ = name
        globals()[name] = task(takes_context=True)(protected)


class Queue(queues.Queue):
    def __init__(self, url: str, once: Once) -> None:
        super().__init__(url, once)
        configure(url)
        call_command("migrate", verbosity=0)
        make(once)

    def words(self) -> list[str]:
        return [sys.executable, "-m", "tests.system.queues.django"]

    def put(self, job: str, *args: Any) -> str:
        return str(globals()[job].enqueue(*args).id)

    def put_twice(self, job: str, *args: Any) -> str:
        first = self.put(job, *args)
        self.result(first)
        self.revive(first)
        return first

    def put_once(self, job: str, *args: Any) -> Enqueued[str]:
        rule: Any = JOBS[job].until
        found = enqueue_once(globals()[job], args, key=BY_ORDER, until=rule)
        return Enqueued(str(found.handle.id), found.duplicate)

    def result(self, job_id: str) -> Any:
        backend = tasks().default_task_backend

        def ended() -> Any:
            found = backend.get_result(job_id)
            if not found.is_finished:
                return None
            if found.errors and found.errors[-1].exception_class_path.endswith("NotYetError"):
                self.revive(job_id)
                return None
            return found

        found = until(ended)
        if found.errors:
            raise queues.FailedError(found.errors[-1].traceback)
        return found.return_value

    def revive(self, job_id: str) -> None:
        from django_tasks_db.models import DBTaskResult

        assert DBTaskResult.objects.filter(id=job_id).update(status="READY") == 1

    def close(self) -> None:
        from django.db import connection  # type: ignore[import-untyped]  # as above

        connection.close()


if "JOBS_BROKER" in os.environ and __name__ != "__main__":
    configure(os.environ["JOBS_BROKER"])
    make(opened())

if __name__ == "__main__":
    from tests.system.queues import django as _tasks  # noqa: F401 - as workers find the tasks

    execute_from_command_line(["", "db_worker", "--interval=0.1", "--no-startup-delay"])
