"""What the unit tests are made of: a call, a record, and patience without luck."""

import pytest

from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.policy import FUNCTION, Policy, terms
from tests import patience
from tests.leases import wait_for_rows

NOW = 1_767_225_600_000_000


@pytest.fixture
def calling():
    """Makes a call; fields of the policy and of the call may be given."""

    def make(scope="billing", key="charge:42", *, policy=None, **fields):
        return Call(
            scope=scope, key=key, terms=terms((policy or Policy()).over(FUNCTION)), **fields
        )

    return make


@pytest.fixture
def recorded():
    """Makes a record that is running; any field may be given."""

    def make(**fields):
        facts = {
            "scope": "billing",
            "key": "charge:42",
            "status": "running",
            "fingerprint": None,
            "token": NOW,
            "nonce": "mine",
            "attempt": 1,
            "lease_end": NOW + 300_000_000,
            "created": NOW,
            "started": NOW,
            "updated": NOW,
            "expires": NOW + 90_000_000_000,
        }
        return Record(**(facts | fields))

    return make


@pytest.fixture
def unbound(monkeypatch):
    """Sessions of a PostgreSQL store wait for a row as long as it takes."""
    wait_for_rows(monkeypatch, "0")


@pytest.fixture
def until():
    """Waits until a condition holds, and fails when it never does."""
    return patience.until


@pytest.fixture
def until_async():
    """The same on an event loop, where others run meanwhile."""
    return patience.until_async
