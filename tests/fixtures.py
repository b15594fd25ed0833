"""Fixtures that several folders of tests share; a conftest.py imports those that it needs."""

import pytest

from tests import patience


@pytest.fixture
def until():
    """Waits until a condition holds, and fails when it never does."""
    return patience.until


@pytest.fixture
def until_async():
    """The same on an event loop, where others run meanwhile."""
    return patience.until_async
