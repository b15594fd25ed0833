"""The Celery worker: an order is three jobs, each of which tells how far it is.

$ export REDIS_URL=redis://localhost:6379/0
$ celery -A examples.orders.tasks worker
"""

from __future__ import annotations

import os
import time
from typing import Final

from celery import Celery  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once
from oncekey.events import Bus, Stages
from oncekey.jobs import by_fields
from oncekey.jobs.celery import once_task

REDIS: Final = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
PACE: Final = float(os.environ.get("ORDERS_PACE", "0.7"))
DOMAIN: Final = "orders"
# The number of an event is how far its job is, in percent.
STAGES: Final = Stages({"work": (0, 100)}, final=100)
PLAN: Final = {
    "pay": ("Asking the bank", "The bank has said yes", "Receipt written"),
    "pack": ("On the list of the store", "Bottle found", "Box folded", "Box closed"),
    "ship": ("Label ordered", "Waiting for the van", "On its way", "At the depot", "Delivered"),
}

app = Celery("orders", broker=REDIS)
app.conf.update(
    task_acks_late=True,  # a job whose worker dies is delivered again
    task_reject_on_worker_lost=True,
    broker_connection_retry_on_startup=True,
)
once = Once(REDIS)
bus = Bus(REDIS, domain=DOMAIN, stages=STAGES)


# A worker that dies and is replaced publishes some events again. They have the same numbers, so
# that each is shown once.
@app.task  # type: ignore[untyped-decorator]  # untyped
@once_task(once, by_fields("order", "part"))
def work(order: str, part: str) -> None:
    texts = PLAN[part]
    for step, text in enumerate(texts, 1):
        time.sleep(PACE)
        bus.publish(f"{order}/{part}", "work", {"text": text}, seq=100 * step // len(texts))
