"""A Celery worker whose tasks outlast the broker's patience: one protected, one as it is."""

import os
from typing import Any

import redis
from celery import Celery, Task  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.jobs import by_task_id
from oncekey.jobs.celery import once_task
from oncekey.observe import Event
from tests.patience import until

URL = os.environ.get("PATIENT_BROKER", "redis://")

app: Any = Celery("patient", broker=f"{URL}/1", backend=f"{URL}/1", set_as_current=False)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": 1,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
)


def work(self: Task, name: str) -> str:
    """It counts itself, and goes on until both are delivered again."""
    with redis.Redis.from_url(f"{URL}/3") as ledger:
        ledger.rpush(name, self.request.id)
        until(lambda: ledger.llen("bare") > 1 and ledger.llen("busy"))
    return f"worked {name}"


def tell(event: Event) -> None:
    """Who comes while the task runs is counted too."""
    if event.name == "busy":
        with redis.Redis.from_url(f"{URL}/3") as ledger:
            ledger.rpush("busy", event.key)


once = Once(f"{URL}/2", observers=[tell])
app.task(work, name="bare", bind=True)
app.task(once_task(once, by_task_id, retry_after="100ms")(work), name="protected", bind=True)
