"""What the jobs of tests/outbox/test_job_targets.py do, where workers can find it."""

from oncekey import Once
from oncekey.jobs.rq import once_job

once = Once("memory://")
charged: list[tuple[str, int]] = []


def charge(order: str, amount: int = 1) -> str:
    charged.append((order, amount))
    return f"receipt of {order}"


charge_with_rq = once_job(once)(charge)
charge_with_rq.__qualname__ = charge_with_rq.__name__ = "charge_with_rq"
