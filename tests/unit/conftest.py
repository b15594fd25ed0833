"""What the unit tests are made of: a call, a record, and patience."""

import pytest

from oncekey.core.call import Call
from oncekey.core.record import Record
from oncekey.policy import FUNCTION, Policy, terms
from tests.fixtures import until, until_async

__all__ = ["until", "until_async"]

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
