"""The behaviour of jobs in each pool of Celery, which runs them in processes or greenlets."""

from tests.jobs.suite import TestDelivery, TestEnqueue, TestKilled, TestStoreDown

__all__ = ["TestDelivery", "TestEnqueue", "TestKilled", "TestStoreDown"]
