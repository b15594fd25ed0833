"""What a relay sends from MariaDB, in which order, and what becomes of what it could not send."""

import pytest

from tests.outbox.conftest import open_outbox, outbox
from tests.outbox.test_relay import (
    long_rests,
    open_relay,
    put,
    test_a_dead_message_is_revived_or_dropped,
    test_a_decision_about_another_death_is_refused,
    test_a_delayed_message_waits,
    test_a_key_has_one_unconfirmed_message_at_a_time,
    test_a_mark_that_comes_too_late_is_refused,
    test_a_message_that_fails_keeps_back_its_key_alone,
    test_a_running_relay_sends_what_comes,
    test_a_stopped_relay_finishes_what_is_under_way,
    test_a_target_out_of_reach_does_not_count,
    test_an_edited_letter_is_sent_in_its_place_with_an_id_of_its_own,
    test_in_blocking_code_it_is_the_same,
    test_more_keys_than_a_batch,
    test_nothing_is_begun_with_too_little_of_the_lease,
    test_one_without_an_answer_does_not_take_the_others_with_it,
    test_order_may_be_given_up_for_the_dead,
    test_relays_take_what_is_theirs,
    test_what_a_dead_relay_had_is_sent_when_its_lease_is_over,
    test_what_another_relay_has_is_left_alone,
    test_what_waits_is_listed_with_its_last_error,
    test_what_was_committed_is_sent_once,
    test_what_was_sent_long_ago_is_purged,
)
from tests.system.mariadb.ways import WAYS

__all__ = [
    "long_rests",
    "open_outbox",
    "open_relay",
    "outbox",
    "put",
    "test_a_dead_message_is_revived_or_dropped",
    "test_a_decision_about_another_death_is_refused",
    "test_a_delayed_message_waits",
    "test_a_key_has_one_unconfirmed_message_at_a_time",
    "test_a_mark_that_comes_too_late_is_refused",
    "test_a_message_that_fails_keeps_back_its_key_alone",
    "test_a_running_relay_sends_what_comes",
    "test_a_stopped_relay_finishes_what_is_under_way",
    "test_a_target_out_of_reach_does_not_count",
    "test_an_edited_letter_is_sent_in_its_place_with_an_id_of_its_own",
    "test_in_blocking_code_it_is_the_same",
    "test_more_keys_than_a_batch",
    "test_nothing_is_begun_with_too_little_of_the_lease",
    "test_one_without_an_answer_does_not_take_the_others_with_it",
    "test_order_may_be_given_up_for_the_dead",
    "test_relays_take_what_is_theirs",
    "test_what_a_dead_relay_had_is_sent_when_its_lease_is_over",
    "test_what_another_relay_has_is_left_alone",
    "test_what_waits_is_listed_with_its_last_error",
    "test_what_was_committed_is_sent_once",
    "test_what_was_sent_long_ago_is_purged",
]


@pytest.fixture
def way(inbox_url):
    return WAYS["pymysql"](inbox_url)
