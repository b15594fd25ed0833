"""Jobs that only RQ can do: the retries it returns, its limits, and its children."""

import os
import signal
from typing import Any

from rq import Retry, get_current_job

from oncekey import current, current_async
from oncekey.jobs import by_task_id
from tests.jobs.work import BRIEF, PATIENT, Kind, effect, hear, say, stall


def ask_again(order: str) -> Any:
    """It asks for one retry, and no more than one."""
    attempt = current()
    attempt.step("charge", effect, order, "charge")
    return Retry(max=1) if attempt.number < 3 else attempt.number


def follow() -> Any:
    """What another job has returned."""
    job = get_current_job()
    assert job is not None
    assert job.dependency is not None
    return job.dependency.return_value()


def twice(order: str) -> int:
    """It runs where it is enqueued, and says which attempt this is."""
    return current().number


def around(order: str) -> Any:
    """It calls the function of another job."""
    from tests.jobs.queues import rq

    return rq.ticket(order, 1)  # type: ignore[attr-defined]  # it is made there


def count(down: int) -> int:
    """It calls its own function, as it is protected."""
    from tests.jobs.queues import rq

    return rq.count(down - 1) + 1 if down else 0  # type: ignore[attr-defined]  # it is made there


def pair(order: str):
    """Without an annotation it would come back as a list."""
    return (1, 2)


def outlast(order: str) -> bool:
    """The first attempt is cut off by its time limit; the next says whether it knows that."""
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


def halt(order: str) -> str:
    """It fails, is tried again, and then waits."""
    if current().number == 1:
        raise ValueError(order)
    say(order, "inside")
    hear(order)
    return effect(order, "charge")


def break_down(order: str) -> None:
    raise ValueError(order)


async def ask(order: str) -> list[Any]:
    """A coroutine."""
    attempt = current_async()
    return [await attempt.step("charge", effect_async, order), attempt.number]


async def effect_async(order: str) -> str:
    return effect(order, "charge")


MORE = {
    "ask_again": Kind(ask_again, options=PATIENT),
    "outlast": Kind(outlast),
    "twice": Kind(twice),
    "count": Kind(count, by_task_id),
    "pair": Kind(pair),
    "die": Kind(die, by_task_id, BRIEF),
    "patient": Kind(stall, by_task_id, PATIENT),
    "ask": Kind(ask),
    "halt": Kind(halt, until="finished"),
    "patient_started": Kind(stall, by_task_id, until="started"),
    "break_finished": Kind(break_down, until="finished"),
    "break_succeeded": Kind(break_down, until="succeeded"),
}
