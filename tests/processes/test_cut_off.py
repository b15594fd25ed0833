"""Exceptions that a signal raises at random moments of a call."""

import pytest

from tests.heavy import HEAVY

CUTS = 3000 if HEAVY else 300


@pytest.mark.parametrize("place", ["memory", "sqlite", "postgres"], indirect=True)
def test_calls_that_signals_cut_off_keep_no_key_and_hang_nobody(place, spawn_of):
    """Afterwards every key is free when its lease is over, and others never notice."""
    worker = spawn_of("tests.processes.cut_off", place, str(CUTS))
    assert int(worker.output()) >= CUTS
