"""What Celery tells about the job that runs, and how a job is put back into its queue."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

from celery import Task, current_task  # type: ignore[import-untyped]  # celery has no types
from celery.exceptions import Ignore, Reject  # type: ignore[import-untyped]  # as above

from oncekey.jobs.job import Job

_log = logging.getLogger("oncekey")

_ENTERED: Final = "oncekey_entered"
"""On a request: its task has begun, so that a call from inside it is no delivery of its own."""


_VISIBLE: Final = 1800
"""Seconds after which no usual broker gives up on a worker, where nobody has said another time."""


def layers(task: Any) -> Iterator[Any]:  # noqa: ANN401 - a task of an untyped library
    """The functions that a worker runs for the task, from the outermost to the user's own."""
    found = task.run
    while found is not None:
        found = getattr(found, "__func__", found)  # a method of the task
        yield found
        found = getattr(found, "__wrapped__", None)


def task_now() -> Any:  # noqa: ANN401 - as above
    """The task that Celery runs now, or None."""
    return current_task._get_current_object() if current_task else None  # noqa: SLF001 - the proxy's way to what it stands for


def delivery(task: Any) -> Any:  # noqa: ANN401 - as above
    """The request of a delivery that begins just now; None for a call in somebody's own code."""
    request = None if task is None else task.request
    if request is None or request.called_directly or _ENTERED in vars(request):
        return None
    setattr(request, _ENTERED, True)
    return request


def job_of(name: str, request: Any, arguments: dict[str, Any]) -> Job:  # noqa: ANN401 - as above
    """The delivery as key functions see it. A plain call has no id."""
    arguments = {one: value for one, value in arguments.items() if not isinstance(value, Task)}
    if request is None:
        return Job(name=name, arguments=arguments)
    told = request.delivery_info or {}
    return Job(
        id=request.id or "",
        name=name,
        arguments=arguments,
        attempt=request.retries + 1,
        redelivered=told.get("redelivered"),
        queue=told.get("routing_key") or "",
        native=request,
    )


def awaited(request: Any) -> bool:  # noqa: ANN401 - as above
    """Whether something goes on from the value that the job returns."""
    return bool(request.chain or request.callbacks or request.chord)


def put_back(task: Any, request: Any, seconds: float, why: Exception) -> Exception:  # noqa: ANN401 - as above
    """The job is in its queue again, with the same id and retries; what to raise now.

    It comes back within a third of the broker's visibility time-out: a longer delay would make the
    broker deliver it once more meanwhile.
    """
    options = task.app.conf.broker_transport_options or {}
    visible = options.get("visibility_timeout") or _VISIBLE
    seconds = min(seconds, float(visible) / 3)
    again = task.signature_from_request(request, countdown=seconds, retries=request.retries)
    said: Exception
    try:
        again.apply_async()
    except Exception as error:  # noqa: BLE001 - the client of a broker may raise anything
        _log.warning("%s[%s] could not be put back: %s", task.name, request.id, error)
        said = Reject(error, requeue=True)
    else:
        _log.debug("%s[%s] comes back in %.3g s: %s", task.name, request.id, seconds, why)
        said = Ignore(str(why))
    return said
