"""What the tests of the doctor look at."""

import pytest


@pytest.fixture
def by_check():
    """Findings by what was looked at."""
    return lambda findings: {finding.check: finding for finding in findings}
