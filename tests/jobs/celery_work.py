"""Jobs that only Celery can do: its retries, its limits, and what goes on from a job."""

import os
import signal
from typing import Any

from celery import Celery, Task  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once, current
from oncekey.jobs.celery import OnceTask, once_task
from tests.jobs.work import (
    BRIEF,
    BY_ORDER,
    PATIENT,
    NotYetError,
    effect,
    hear,
    opened,
    say,
    stall,
)


class DeclinedError(Exception):
    """A definite answer, which is kept."""


def receipt(charged: dict[str, Any]) -> str:
    """The next in a chain."""
    found: str = charged["receipt"]
    return found


def receipts(charged: list[dict[str, Any]]) -> list[str]:
    """The body of a chord."""
    return [receipt(one) for one in charged]


def write_down(value: object, order: str) -> None:
    """What a job is linked to."""
    effect(order, str(value))


def write_error(request: Any, error: Exception, _trace: object, order: str) -> None:
    """What is called when a job fails."""
    effect(order, type(error).__name__)


def decline(order: str) -> None:
    effect(order, "decline")
    raise DeclinedError(order)


def ask_again(self: Task, order: str) -> list[bool]:
    """It asks for a retry itself, because of an error after which nobody knows."""
    attempt = current()
    attempt.note(seen=[*attempt.notes.get("seen", []), attempt.uncertain])
    if attempt.number == 1:
        raise self.retry(exc=ConnectionError(), countdown=0.05)
    seen: list[bool] = attempt.notes["seen"]
    return seen


def send_again(self: Task, order: str) -> str:
    """It sends itself again, and goes on to its end."""
    effect(order, "charge")
    if self.request.retries == 0:
        self.retry(throw=False, countdown=0.05)
        return "later"
    return "done"


def outlast(order: str) -> bool:
    """The first attempt is cut off by its soft limit; the next says whether it knows that."""
    attempt = current()
    if attempt.number == 1:
        hear(order)
    return attempt.uncertain


def die(order: str) -> str:
    """The first attempt kills its process."""
    attempt = current()
    found = attempt.step("charge", effect, order, "charge")
    if attempt.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def perish(order: str) -> None:
    """Every attempt kills its process."""
    os.kill(os.getpid(), signal.SIGKILL)


def halt(order: str) -> str:
    """It fails, is tried again, and then waits."""
    if current().number == 1:
        raise NotYetError
    say(order, "inside")
    hear(order)
    return effect(order, "charge")


def break_down(order: str) -> None:
    raise ValueError(order)


def hourly(order: str) -> str:
    """Schedulers send it far more often than its period says."""
    return effect(order, "charge")


def register(app: Celery, once: Once) -> None:
    periods: dict[str, Any] = {"once_enqueue": BY_ORDER, "once_per": "1h"}
    app.task(hourly, name="hourly", base=OnceTask, once=once, **periods)
    brief: dict[str, Any] = {"once_enqueue": BY_ORDER, "once_options": BRIEF}
    app.task(stall, name="brief_stall", base=OnceTask, once=once, once_key=BY_ORDER, **brief)
    app.conf.beat_schedule = {
        "hourly": {"task": "hourly", "schedule": 0.5, "args": ("every hour",)}
    }
    app.conf.beat_max_loop_interval = 0.5
    for plain in (receipt, receipts, write_down, write_error):
        app.task(plain, name=plain.__name__, acks_late=False)
    again: dict[str, Any] = {"autoretry_for": (NotYetError,), "retry_kwargs": {"countdown": 0.05}}
    app.task(once_task(once, BY_ORDER, keep=DeclinedError)(decline), name="decline")
    app.task(once_task(once, BY_ORDER)(ask_again), name="ask_again", bind=True)
    app.task(once_task(once, BY_ORDER)(send_again), name="send_again", bind=True)
    app.task(once_task(once, BY_ORDER)(outlast), name="outlast")
    # It has not a single retry.
    app.task(once_task(once, **PATIENT)(stall), name="patient", max_retries=0)
    # A store that is silent is given up at once.
    hasty = opened(0.5) if "JOBS_STORE" in os.environ else once
    app.task(once_task(hasty, BY_ORDER, fail_mode="closed")(stall), name="strict_stall")
    app.task(once_task(once, BY_ORDER, **BRIEF)(die), name="die", reject_on_worker_lost=True)
    for name, function, until in (
        ("halt", halt, "finished"),
        ("patient_started", stall, "started"),
        ("perish", perish, "finished"),
        ("break_finished", break_down, "finished"),
        ("break_succeeded", break_down, "succeeded"),
    ):
        options: dict[str, Any] = {"once_enqueue": BY_ORDER, "once_until": until}
        app.task(function, name=name, base=OnceTask, once=once, **options, **again)
