"""Jobs that were deduplicated at enqueue: when they end, another one like them may be enqueued.

Celery's signals tell the end: they come after its own retrying, and also from the worker that finds
its child dead.
"""

from __future__ import annotations

from typing import Any

from celery.signals import (  # type: ignore[import-untyped]  # celery has no types
    task_failure,
    task_success,
)

from oncekey.jobs.celery_request import layers
from oncekey.jobs.tag import HEADER, Moment, free, read_tag
from oncekey.once import Once


def free_job(once: Once, request: Any, moment: Moment) -> None:  # noqa: ANN401 - of an untyped library
    """At this moment of the job another one may be enqueued, if its tag says so."""
    tag = read_tag((request.headers or {}).get(HEADER))
    if tag is not None:
        free(once, tag, moment)


def _at(moment: Moment, task: Any) -> None:  # noqa: ANN401 - as above
    request = getattr(task, "request", None)
    if request is None or HEADER not in (request.headers or ()):
        return
    once = next((one.oncekey.once for one in layers(task) if hasattr(one, "oncekey")), None)
    if once is not None:
        free_job(once, request, moment)


@task_success.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _succeeded(sender: Any = None, **_: Any) -> None:  # noqa: ANN401 - as above
    _at("succeeded", sender)


@task_failure.connect(weak=False)  # type: ignore[untyped-decorator]  # celery has no types
def _failed(sender: Any = None, **_: Any) -> None:  # noqa: ANN401 - as above
    _at("failed", sender)
