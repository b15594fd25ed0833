"""The behaviour of jobs in queues that want another redis-py than ours."""

from tests.jobs.suite import TestDelivery, TestEnqueue, TestKilled, TestStoreDown

__all__ = ["TestDelivery", "TestEnqueue", "TestKilled", "TestStoreDown"]
