"""A Taskiq worker for a shop: orders are charged once, however often their jobs arrive.

    $ export REDIS_URL=redis://localhost:6379/0
    $ taskiq worker examples.worker.taskiq_app:broker     # in one terminal
    $ python -m examples.worker.taskiq_app                # in another: what a shop does

Without $REDIS_URL the second runs its jobs in its own process, with nothing to start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any, Final

from taskiq import (
    AsyncBroker,
    AsyncTaskiqTask,
    InMemoryBroker,
    SimpleRetryMiddleware,
    TaskiqEvents,
    TaskiqState,
)
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from oncekey import Once, current_async
from oncekey.jobs import by_fields
from oncekey.jobs.taskiq import enqueue_once, once_task

REDIS: Final = os.environ.get("REDIS_URL", "")
LEDGER: Final = Path(os.environ.get("WORKER_LEDGER", "worker-ledger.txt"))


def make_broker() -> AsyncBroker:
    """A stream, which delivers the jobs of a worker that died to another one."""
    if not REDIS:
        return InMemoryBroker()
    results: RedisAsyncResultBackend[Any] = RedisAsyncResultBackend(REDIS)
    return RedisStreamBroker(REDIS, consumer_id="0").with_result_backend(results)


broker = make_broker()
broker.add_middlewares(SimpleRetryMiddleware(types_of_exceptions=[ConnectionError]))
once = Once(REDIS or "memory://")


@broker.on_event(TaskiqEvents.WORKER_SHUTDOWN, TaskiqEvents.CLIENT_SHUTDOWN)
async def close(_state: TaskiqState) -> None:
    await once.aclose()


class DeclinedError(Exception):
    """The bank said no. Asking again would not change that."""


def write(line: str) -> None:
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


# Money: one charge for an order, whoever enqueues it and however often. A refusal is an answer, and
# is kept. While the store is down nobody is charged: the job waits in the queue.
@broker.task(retry_on_error=True)
@once_task(once, by_fields("order"), ttl="7d", keep=DeclinedError, fail_mode="closed")
async def charge(order: str, amount: int) -> str:
    if amount > 1000:
        raise DeclinedError(order)
    # A real shop would send the key to the bank, which then knows a repetition too.
    write(f"charge {order} {amount} {current_async().downstream_key('charge')}")
    return f"receipt of {order} over {amount}"


# Several effects: each is a step, and an attempt after a crash skips those that are done.
@broker.task
@once_task(once, by_fields("order"))
async def ship(order: str) -> str:
    attempt = current_async()
    label = await attempt.step("label", str.upper, f"label of {order}")
    await attempt.step("hand over", write, f"ship {order}")
    return f"parcel with the {label}"


# Work that should not pile up: for an hour no second report of a month is even enqueued. It blocks,
# so Taskiq runs it on a thread.
@broker.task
@once_task(once, by_fields("month"), ttl="1h")
def report(month: str) -> str:
    return f"report of {month}"


async def answer(job: AsyncTaskiqTask[str]) -> str:
    """What the job returned, or why it failed."""
    found = await job.wait_result(check_interval=0.01, timeout=60)
    return found.return_value if found.error is None else repr(found.error)


async def main() -> None:
    """A shop that sends everything twice."""
    logging.getLogger("taskiq").setLevel(logging.CRITICAL)  # it reports refusals as errors
    await broker.startup()
    for _ in range(2):
        print("charged:", await answer(await charge.kiq("A-17", 40)))
        print("shipped:", await answer(await ship.kiq("A-17")))
    for _ in range(2):
        print("refused:", await answer(await charge.kiq("A-18", 4000)))
    hourly = enqueue_once(report, until="ttl", ttl="1h")
    jobs = [await hourly.kiq("2026-11") for _ in range(2)]
    print("the second report is a duplicate:", jobs[1].duplicate)
    print("reported:", {await answer(job.handle) for job in jobs})
    done = LEDGER.read_text("utf-8").splitlines()
    print("charges:", sum(line.startswith("charge A-17 ") for line in done))
    print("parcels:", done.count("ship A-17"))
    await broker.shutdown()


if __name__ == "__main__":
    from examples.worker.taskiq_app import main as main_of_the_module

    asyncio.run(main_of_the_module())  # so that tasks have the name of the module, as in the worker
