"""Exceptions that a signal raises at random moments of a call."""

import pytest

from tests.heavy import HEAVY

CUTS = 3000 if HEAVY else 300
STORES = ("memory", "sqlite", "postgres", "redis")


@pytest.mark.parametrize("store_url", STORES, indirect=True)
def test_calls_that_signals_cut_off_keep_no_key_and_hang_nobody(store_url, spawn_of):
    """Afterwards every key is free when its lease is over, and others never notice."""
    worker = spawn_of("tests.processes.cut_off", store_url, str(CUTS))
    assert int(worker.output()) >= CUTS
