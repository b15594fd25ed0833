"""What every queue must do, on the real library, with real workers: see `conftest.py`."""

# ruff: noqa: F401 - the tests are there to be found

from tests.jobs.suite import TestDelivery, TestEnqueue, TestKilled, TestStoreDown
