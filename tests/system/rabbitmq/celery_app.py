"""A Celery application on a quorum queue that drops a job after 20 deliveries.

A worker process imports it, with its settings in the environment: see `celery_kills.py`. The store
is also the ledger, where every run and every effect is counted.
"""

import os
import time
from functools import cache
from typing import Any

import redis
from celery import Celery  # type: ignore[import-untyped]  # celery has no types
from celery.signals import worker_ready  # type: ignore[import-untyped]  # as above
from kombu.entity import Exchange, Queue

from oncekey import Once, current
from oncekey.jobs import by_fields
from oncekey.jobs.celery import once_task
from oncekey.observe import Event
from tests.patience import PATIENCE

LIMIT = 20
"""Deliveries, as RabbitMQ 4 has it by default."""


def make(broker: str, queue: str, exchange: str) -> Celery:
    """Return the application. Only through a topic exchange Celery delays jobs in the broker."""
    app = Celery("kills", broker=broker, set_as_current=False)
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": LIMIT,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{queue}-dead",
    }
    first, second = (
        Queue(name, Exchange(name, type=exchange), routing_key=name, queue_arguments=arguments)
        for name in (f"{queue}-default", queue)
    )
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
        task_acks_late=True,
        task_default_queue=f"{queue}-default",
        task_ignore_result=True,
        task_queues=[first, second],
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
    )
    return app


@cache
def ledger() -> "redis.Redis":
    url = f"{os.environ['KILLS_STORE'][:-1]}1"
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=None)


def charge(order: int, seconds: float) -> str:
    """Take a while, then have an effect that the other side takes once for each key."""
    ledger().rpush("runs", order)
    time.sleep(seconds)
    key = current().downstream_key("charge")
    ledger().hsetnx("effects", key, order)
    ledger().hincrby("calls", key)
    return key


def stall(order: int) -> str:
    """Do the same when a test says so."""
    ledger().rpush("said", order)
    assert ledger().blpop([f"told:{order}"], PATIENCE)
    return charge(order, 0)


def begin(sender: Any, **_: Any) -> None:
    """Write down that this worker takes jobs now."""
    ledger().sadd("ready", sender.hostname)


def tell(event: Event) -> None:
    """Write down what happened to a job."""
    if event.key:
        ledger().rpush(f"events:{event.key}", event.name)


if "KILLS_BROKER" in os.environ:
    worker_ready.connect(begin)
    app: Any = make(*(os.environ[f"KILLS_{one}"] for one in ("BROKER", "QUEUE", "EXCHANGE")))
    once = Once(os.environ["KILLS_STORE"], observers=[tell])
    said: dict[str, Any] = {
        "lease": os.environ["KILLS_LEASE"],
        "retry_after": os.environ["KILLS_RETRY_AFTER"],
    }
    for function in (charge, stall):
        app.task(once_task(once, by_fields("order"), **said)(function), name=function.__name__)
