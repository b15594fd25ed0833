"""Nobody here is in a hurry: who waits for ever is found out by the patience of the tests."""

import pytest

from tests.leases import unhurried


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch):
    unhurried(monkeypatch)
