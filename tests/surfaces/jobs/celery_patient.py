"""A Celery worker whose tasks outlast the broker's patience: one protected, one as it is."""

import os
import time
from typing import Any

import redis
from celery import Celery, Task  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.jobs import by_task_id
from oncekey.jobs.celery import once_task

VISIBLE = int(os.environ.get("PATIENT_VISIBLE", "1"))
SECONDS = float(os.environ.get("PATIENT_SECONDS", "1"))
URL = os.environ.get("PATIENT_BROKER", "redis://")

app: Any = Celery("patient", broker=f"{URL}/1", backend=f"{URL}/1", set_as_current=False)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": VISIBLE,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)


def work(self: Task, name: str) -> str:
    """It counts itself, and takes its time."""
    with redis.Redis.from_url(f"{URL}/3") as ledger:
        ledger.rpush(name, self.request.id)
    time.sleep(SECONDS)
    return f"worked {name}"


once = Once(f"{URL}/2")
app.task(work, name="bare", bind=True)
app.task(once_task(once, by_task_id)(work), name="protected", bind=True)
