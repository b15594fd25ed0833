"""A Celery worker whose tasks take 9 seconds, on a broker that delivers again after 2."""

import os
import time
from typing import Any

import redis
from celery import Celery, Task  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.jobs import by_task_id
from oncekey.jobs.celery import once_task
from tests.patience import PATIENCE

URL = os.environ.get("VISIBILITY_BROKER", "redis://")
VISIBILITY = {"visibility_timeout": 2}
TASK = 9.0
"""Seconds that a task takes at least."""

app: Any = Celery("visibility", broker=f"{URL}/1", backend=f"{URL}/1", set_as_current=False)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options=VISIBILITY,
)


def work(self: Task, name: str) -> str:
    """Count the execution, take so long, and end when the test has seen the redelivery."""
    with redis.Redis.from_url(f"{URL}/3", socket_timeout=None) as ledger:
        ledger.rpush(name, self.request.id)
        time.sleep(TASK)
        assert ledger.blpop([f"{name} may end"], PATIENCE)
    return f"worked {name}"


once = Once(f"{URL}/2")
app.task(work, name="bare", bind=True)
app.task(once_task(once, by_task_id, retry_after="500ms")(work), name="protected", bind=True)
