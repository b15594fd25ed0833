from functools import partial

import pytest

from tests.processes.place_fixtures import *  # noqa: F403 - fixtures are found by their names
from tests.processes.places import using
from tests.processes.spawning import spawn_of

__all__ = ["spawn_of"]


@pytest.fixture
def ledger(tmp_path):
    ledger = tmp_path / "ledger"
    ledger.touch()
    return str(ledger)


@pytest.fixture
def once(place):
    """The store from this process."""
    with using(place) as once:
        yield once


@pytest.fixture
def spawn(spawn_of):
    """Starts processes of `worker.py`."""
    return partial(spawn_of, "tests.processes.worker")
