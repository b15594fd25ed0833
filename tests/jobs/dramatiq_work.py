"""Jobs that only Dramatiq can do: its limits, coroutines, and what goes on from a message."""

import asyncio
import time
from typing import Any

import dramatiq
from dramatiq import Broker, Middleware
from dramatiq.middleware import AsyncIO, GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend

from oncekey import current, current_async
from tests.jobs.work import BY_ORDER, effect, hear, say, stall
from tests.leases import LONG
from tests.patience import PATIENCE


class Rules(Middleware):
    """Lets an actor say until when its messages are deduplicated, for the tests to read."""

    @property
    def actor_options(self) -> set[str]:
        return {"until"}


def receipt(charged: dict[str, Any]) -> str:
    """The next in a pipeline."""
    found: str = charged["receipt"]
    return found


def write_down(order: str) -> None:
    """What is called when a group has completed."""
    effect(order, "group")
    say(order, "completed")


def outlast(order: str) -> bool:
    """The first attempt is cut off by its time limit; the next says whether it knows that."""
    attempt = current()
    while attempt.number == 1:
        time.sleep(0.01)  # the interrupt comes between two of them
    return attempt.uncertain


async def outlast_async(order: str) -> bool:
    """The same for a coroutine."""
    attempt = current_async()
    if attempt.number == 1:
        await asyncio.sleep(PATIENCE)
    return attempt.uncertain


async def ask(order: str) -> list[Any]:
    """A coroutine, which is asked to come again."""
    attempt = current_async()
    found = await attempt.step("charge", effect_async, order)
    if attempt.number == 1:
        raise dramatiq.Retry(delay=10)
    return [found, attempt.number]


async def effect_async(order: str) -> str:
    return effect(order, "charge")


def break_down(order: str) -> None:
    raise ValueError(order)


def halt(order: str) -> str:
    """It fails, is tried again, and then waits."""
    if current().number == 1:
        raise dramatiq.Retry(delay=10)
    say(order, "inside")
    hear(order)
    return effect(order, "charge")


def register(broker: Broker) -> None:
    broker.add_middleware(Rules())
    broker.add_middleware(AsyncIO())
    broker.add_middleware(GroupCallbacks(RedisBackend(client=broker.client)))  # type: ignore[attr-defined]  # the broker is of Redis
    options: dict[str, Any] = {"broker": broker, "once_key": BY_ORDER}
    dramatiq.actor(broker=broker)(receipt)
    dramatiq.actor(broker=broker)(write_down)
    for cut_off in (outlast, outlast_async):
        dramatiq.actor(time_limit=100, min_backoff=10, **options)(cut_off)
    dramatiq.actor(**options)(ask)
    # Not a single retry.
    short = {"lease": LONG, "retry_after": "50ms"}
    dramatiq.actor(actor_name="patient", max_retries=0, once_options=short, **options)(stall)
    for name, function, until in (
        ("halt", halt, "finished"),
        ("patient_started", stall, "started"),
        ("break_finished", break_down, "finished"),
        ("break_succeeded", break_down, "succeeded"),
    ):
        retries = 1 if name == "halt" else 0
        dramatiq.actor(actor_name=name, max_retries=retries, until=until, **options)(function)
