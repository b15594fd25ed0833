"""Several real processes on one MariaDB: crowds, kills, pauses and forks, as on every store."""

import pytest

from tests.processes.child_processes import spawn_of
from tests.processes.conftest import ledger, once, spawn
from tests.processes.test_processes import (
    test_a_killed_worker_is_taken_over_with_its_notes_and_steps,
    test_a_living_worker_keeps_its_lease,
    test_a_once_made_before_a_fork_works_in_the_child,
    test_a_paused_worker_answers_with_the_winners_result,
    test_one_key_and_many_processes_run_it_once,
)

__all__ = [
    "ledger",
    "once",
    "spawn",
    "spawn_of",
    "test_a_killed_worker_is_taken_over_with_its_notes_and_steps",
    "test_a_living_worker_keeps_its_lease",
    "test_a_once_made_before_a_fork_works_in_the_child",
    "test_a_paused_worker_answers_with_the_winners_result",
    "test_one_key_and_many_processes_run_it_once",
]


@pytest.fixture
def store_url(url):
    return url
