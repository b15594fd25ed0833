"""A Celery application whose one task keeps messages of an outbox, each once.

A worker imports it, and relays do to know its broker.
"""

import os
import time
from functools import cache
from typing import Any

import psycopg
from celery import Celery  # type: ignore[import-untyped]  # celery has no types

from oncekey.messages import Inbox, Message
from tests.outbox.kill_run import KEEP, OUT_OF_REACH, REPEATED

app: Any = Celery("receiver", broker=os.environ["RECEIVER_BROKER"], set_as_current=False)
app.conf.update(
    broker_connection_max_retries=None,
    broker_connection_retry_on_startup=True,
    task_acks_late=True,
    task_default_queue="receiver",
    task_ignore_result=True,
    # With 1 a job that comes at once is confirmed seconds later: kombu waits before it sends that.
    worker_prefetch_multiplier=16,
)


@cache
def inbox() -> Inbox:
    return Inbox(os.environ["RECEIVER_DATABASE"], "receiver")


@cache
def connection() -> psycopg.Connection:
    return psycopg.connect(os.environ["RECEIVER_DATABASE"])


@app.task(bind=True)
def keep(task: Any, key: str, number: int) -> None:
    """Keep the message, as soon as the database is there."""
    while True:
        try:
            with (
                connection().transaction(),
                inbox().atomic(connection(), Message(id=task.request.id)) as delivery,
            ):
                if delivery.duplicate:
                    connection().execute(REPEATED, [task.request.id])
                else:
                    connection().execute(KEEP, (task.request.id, key, number))
        except OUT_OF_REACH:
            connection.cache_clear()
            time.sleep(0.1)
        else:
            return
