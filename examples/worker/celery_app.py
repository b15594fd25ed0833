"""A Celery worker for a shop: orders are charged once, however often their jobs arrive.

    $ export REDIS_URL=redis://localhost:6379/0
    $ celery -A examples.worker.celery_app worker        # in one terminal
    $ python -m examples.worker.celery_app               # in another: what a shop does

Without $REDIS_URL the second runs its jobs in place, with nothing to start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from celery import Celery, chain  # type: ignore[import-untyped]  # celery has no types

from oncekey import Once, current
from oncekey.jobs import by_fields
from oncekey.jobs.celery import OnceTask, once_task

REDIS: Final = os.environ.get("REDIS_URL", "")
LEDGER: Final = Path(os.environ.get("WORKER_LEDGER", "worker-ledger.txt"))

app = Celery("shop", broker=REDIS or "memory://", backend=REDIS or "cache+memory://")
app.conf.update(
    task_acks_late=True,  # a job whose worker dies is delivered again
    task_reject_on_worker_lost=True,
    task_always_eager=not REDIS,
    broker_connection_retry_on_startup=True,
)
once = Once(REDIS or "memory://")  # each process of the pool opens its own connections


class DeclinedError(Exception):
    """The bank said no. Asking again would not change that."""


def tell_bank(order: str, amount: int, key: str) -> str:
    """Here a real shop would send the key along, so that the bank knows a repetition too."""
    if amount > 1000:
        raise DeclinedError(order)
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"charge {order} {amount} {key}\n")
    return f"receipt of {order} over {amount}"


# Money: one charge for an order, whoever enqueues it and however often. A refusal is an answer, and
# is kept. While the store is down nobody is charged: the job waits in the queue.
@app.task(autoretry_for=(ConnectionError,), retry_backoff=True)  # type: ignore[untyped-decorator]  # untyped
@once_task(once, by_fields("order"), ttl="7d", keep=DeclinedError, fail_mode="closed")
def charge(order: str, amount: int) -> str:
    return tell_bank(order, amount, current().downstream_key("charge"))


# Several effects: each is a step, and an attempt after a crash skips those that are done.
@app.task(bind=True)  # type: ignore[untyped-decorator]  # untyped
@once_task(once)
def ship(self: Any, receipt: str) -> str:  # noqa: ARG001 - the task itself, as in most workers
    attempt = current()
    label = attempt.step("label", str.upper, receipt)
    attempt.note(label=label)
    return f"parcel with the {label}"


# Work that should not pile up: while one report of a month waits or runs, no other is enqueued.
@app.task(base=OnceTask, once=once, once_enqueue=by_fields("month"), once_enqueue_ttl="1h")  # type: ignore[untyped-decorator]  # untyped
def report(month: str) -> str:
    return f"report of {month}"


def main() -> None:
    """A shop that sends everything twice."""
    for _ in range(2):
        job = chain(charge.s("A-17", 40), ship.s()).apply_async()
        print("shipped:", job.get(timeout=60))
    for _ in range(2):
        refused = charge.delay("A-18", 4000).get(timeout=60, propagate=False)
        print("refused:", repr(refused))
    jobs = [report.apply_async(("2026-11",), countdown=1) for _ in range(2)]
    print("the second report is a duplicate:", jobs[1].duplicate)
    print("reported:", {job.get(timeout=60) for job in jobs})
    charged = LEDGER.read_text("utf-8").splitlines()
    print("charges:", sum(line.startswith("charge A-17 ") for line in charged))


if __name__ == "__main__":
    from examples.worker.celery_app import main as main_of_the_module

    main_of_the_module()  # the tasks are called by the name of the module, here and in the worker
