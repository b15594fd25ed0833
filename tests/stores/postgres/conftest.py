"""What the tests of the PostgreSQL store share."""

import pytest

from tests.leases import wait_for_rows


@pytest.fixture
def unbound(monkeypatch):
    """Sessions of a PostgreSQL store wait for a row as long as it takes."""
    wait_for_rows(monkeypatch, "0")
