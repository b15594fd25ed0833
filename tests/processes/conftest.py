from functools import partial

import pytest

from tests.processes.child_processes import spawn_of
from tests.processes.store_fixtures import *  # noqa: F403 - fixtures are found by their names
from tests.processes.store_urls import using

__all__ = ["spawn_of"]


@pytest.fixture
def ledger(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.touch()
    return str(ledger)


@pytest.fixture
def once(store_url):
    """The store from this process."""
    with using(store_url) as once:
        yield once


@pytest.fixture
def spawn(spawn_of):
    """Starts processes of `worker.py`."""
    return partial(spawn_of, "tests.processes.worker")
