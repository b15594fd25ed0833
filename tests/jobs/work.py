"""What the jobs do, the same in every queue, and how they are protected.

A worker finds the store of its records in `JOBS_STORE`, and in `JOBS_LEDGER` a Redis that has
nothing to do with it: there every effect is written down, and there a job and the test that
watches it talk to each other.
"""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from secrets import token_hex
from typing import Any

import redis
from prometheus_client import generate_latest

from oncekey import Once, current
from oncekey.jobs import by_fields, by_task_id
from oncekey.observe import Event, Observer
from oncekey.observe.log import LogObserver
from oncekey.observe.prometheus import PrometheusObserver
from tests.leases import LONG, beat_often
from tests.patience import PATIENCE

AGAIN = "200ms"
BY_ORDER = by_fields("order")
PATIENT: dict[str, Any] = {"lease": LONG, "retry_after": AGAIN}
BRIEF: dict[str, Any] = {"lease": "1ms", "heartbeat": False, "retry_after": AGAIN}
"""For those who die: whoever comes next takes over."""


class NotYetError(Exception):
    """The job must be tried again: every queue is told to do so, soon and up to five times."""


@cache
def ledger() -> "redis.Redis":
    url = os.environ["JOBS_LEDGER"]  # jobs wait there, longer than clients do by themselves
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=None)


def effect(order: str, what: str) -> str:
    """It happened, and it is written down."""
    receipt = f"{what}-{token_hex(4)}"
    ledger().rpush(f"effects:{order}", what)
    return receipt


def say(order: str, word: str) -> None:
    ledger().rpush(f"said:{order}", word)


def hear(order: str) -> None:
    """The test has told the job to go on."""
    assert ledger().blpop([f"told:{order}"], PATIENCE)


# Jobs


def charge(order: str, amount: int) -> dict[str, Any]:
    """What it returns is different each time it runs."""
    return {"order": order, "amount": amount, "receipt": effect(order, "charge")}


def stall(order: str) -> str:
    """It has an effect, says that it is inside, and ends when it is told to."""
    attempt = current()
    receipt = attempt.step("charge", effect, order, "charge")
    say(order, "inside")
    hear(order)
    return receipt


def flaky(order: str, failures: int) -> list[Any]:
    """It fails so many times. Its step is done by the first attempt alone."""
    attempt = current()
    receipt = attempt.step("reserve", effect, order, "reserve")
    attempt.note(seen=[*attempt.notes.get("seen", []), attempt.number])
    if attempt.number <= failures:
        raise NotYetError
    return [receipt, attempt.notes["seen"], effect(order, "charge")]


@dataclass(frozen=True)
class Kind:
    """A job: what it does, and the arguments of its protection."""

    function: Callable[..., Any]
    key: Callable[..., str] = BY_ORDER
    options: dict[str, Any] = field(default_factory=dict)
    until: str = ""
    """When another one like it may be enqueued; empty where `put_once` is not used."""


JOBS = {
    "charge": Kind(charge, until="finished"),
    "ticket": Kind(charge, by_task_id),
    "stall": Kind(stall, options=PATIENT, until="finished"),
    "flaky": Kind(flaky),
    "strict": Kind(charge, options={"fail_mode": "closed", "retry_after": AGAIN}),
    "brief": Kind(charge, options={"ttl": "500ms"}),
}


# What the worker tells


def tell(event: Event) -> None:
    """What happened to a key can be waited for, and the metrics have it by then."""
    if event.key:
        ledger().hset("metrics", str(os.getpid()), generate_latest().decode())
        ledger().rpush(f"events:{event.key}", event.name)


class Lines(logging.Handler):
    """Log lines with their fields, by key."""

    def emit(self, record: logging.LogRecord) -> None:
        key = getattr(record, "idempotency_key", "")
        line = {
            "level": record.levelname,
            "text": record.getMessage(),
            "task_type": getattr(record, "task_type", None),
            "idempotency_key": key,
        }
        ledger().rpush(f"lines:{key}", json.dumps(line))


@cache
def observers() -> list[Observer]:
    log = logging.getLogger("oncekey.test")
    log.setLevel(logging.DEBUG)
    log.propagate = False
    log.addHandler(Lines())
    return [LogObserver(log), PrometheusObserver(), tell]


def opened(patience: float = PATIENCE) -> Once:
    """The worker's way to the store, which is given so many seconds for an answer."""
    beat_often()
    return Once(f"{os.environ['JOBS_STORE']}?socket_timeout={patience}", observers=observers())
