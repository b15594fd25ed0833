"""MariaDB does what it is told, and its reply is lost: as on every store."""

import pytest

from tests.faults.line import LossyLine, is_mysql_verb
from tests.faults.test_lost_replies import (
    _no_hurry,
    caller,
    effects,
    events,
    test_a_check_is_new_once,
    test_a_claim_is_asked_for_again,
    test_a_claim_that_nobody_heard_of_is_given_back,
    test_a_late_record_whose_reply_was_lost_is_not_taken_for_anothers,
    test_a_settle_is_repeated,
    test_an_open_run_is_recorded_by_the_claim_that_nobody_heard_of,
    test_the_keeper_settles_what_nobody_heard_of,
)
from tests.fixtures import until

__all__ = [
    "_no_hurry",
    "caller",
    "effects",
    "events",
    "test_a_check_is_new_once",
    "test_a_claim_is_asked_for_again",
    "test_a_claim_that_nobody_heard_of_is_given_back",
    "test_a_late_record_whose_reply_was_lost_is_not_taken_for_anothers",
    "test_a_settle_is_repeated",
    "test_an_open_run_is_recorded_by_the_claim_that_nobody_heard_of",
    "test_the_keeper_settles_what_nobody_heard_of",
    "until",
]


@pytest.fixture
def line(mariadb, url):
    line = LossyLine(mariadb.port, is_mysql_verb)
    line.url = url.replace(f":{mariadb.port}/", f":{line.port}/")
    yield line
    line.close()
