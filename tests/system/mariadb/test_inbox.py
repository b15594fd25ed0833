"""The inbox on MariaDB: what holds on every database, with each driver of this one."""

from contextlib import closing

import pytest

from oncekey.messages.connections.mysql import MySQLConnections
from oncekey.messages.table import Table
from tests.messages.conftest import inbox, open_inbox
from tests.messages.test_atomic import (
    test_a_block_that_completes_nothing_completes_with_none,
    test_a_duplicate_gets_the_result_and_writes_nothing,
    test_a_result_that_cannot_be_kept_is_no_reason_to_run_again,
    test_a_rollback_takes_the_mark_with_it,
    test_a_statement_that_fails_inside_is_undone_too,
    test_an_error_undoes_the_block_and_leaves_the_transaction,
    test_an_expired_mark_counts_for_nothing,
    test_another_message_under_a_used_key_is_refused,
    test_complete_is_said_once_and_to_no_other_connection,
    test_consumers_do_not_share_marks,
    test_two_messages_in_one_transaction,
)
from tests.messages.test_atomic_together import (
    test_the_second_takes_over_as_soon_as_the_first_rolls_back,
    test_the_second_waits_for_the_first_and_gets_its_result,
)
from tests.messages.test_batches import (
    test_a_message_that_is_twice_in_a_batch_is_its_own_duplicate,
    test_an_empty_batch_is_nothing,
    test_an_error_undoes_the_whole_batch_and_leaves_the_transaction,
    test_another_message_under_a_used_key_refuses_the_batch,
    test_each_message_of_a_batch_is_processed_once,
    test_messages_that_failed_or_lapsed_are_taken_over,
    test_one_in_progress_elsewhere_refuses_the_batch,
)
from tests.messages.test_leased import (
    test_a_lease_is_renewed_while_the_work_goes_on,
    test_a_long_transaction_costs_nobody_a_lease,
    test_a_redelivery_during_a_long_transaction_is_refused_and_not_stuck,
    test_a_rolled_back_completion_cannot_be_overlooked,
    test_a_rolled_back_completion_frees_the_message,
    test_a_stale_consumer_cannot_complete_what_another_is_at,
    test_a_transaction_around_the_block_is_still_open_at_its_end,
    test_a_transaction_that_failed_may_be_tried_again,
    test_an_error_frees_the_message_and_is_counted,
    test_completed_by_itself_or_with_the_end_of_the_block,
    test_completed_in_the_transaction_of_the_business,
    test_whoever_lost_the_lease_cannot_complete_and_its_write_is_rolled_back,
)
from tests.messages.test_marks import (
    test_a_failed_one_may_be_processed_again,
    test_an_expired_one_counts_as_not_processed,
    test_consumers_have_marks_of_their_own,
    test_ids_of_any_characters_and_length,
    test_only_who_owns_a_mark_ends_it,
    test_the_life_of_a_mark,
    test_what_is_no_key,
)
from tests.messages.test_own import (
    test_a_claim_of_another_meaning_is_refused_unless_the_first_has_failed,
    test_a_lost_reply_is_asked_for_again,
    test_only_the_owner_renews_and_what_is_gone_is_lost,
)
from tests.system.mariadb.ways import WAYS

__all__ = [
    "inbox",
    "open_inbox",
    "test_a_block_that_completes_nothing_completes_with_none",
    "test_a_claim_of_another_meaning_is_refused_unless_the_first_has_failed",
    "test_a_duplicate_gets_the_result_and_writes_nothing",
    "test_a_failed_one_may_be_processed_again",
    "test_a_lease_is_renewed_while_the_work_goes_on",
    "test_a_long_transaction_costs_nobody_a_lease",
    "test_a_lost_reply_is_asked_for_again",
    "test_a_message_that_is_twice_in_a_batch_is_its_own_duplicate",
    "test_a_redelivery_during_a_long_transaction_is_refused_and_not_stuck",
    "test_a_result_that_cannot_be_kept_is_no_reason_to_run_again",
    "test_a_rollback_takes_the_mark_with_it",
    "test_a_rolled_back_completion_cannot_be_overlooked",
    "test_a_rolled_back_completion_frees_the_message",
    "test_a_stale_consumer_cannot_complete_what_another_is_at",
    "test_a_statement_that_fails_inside_is_undone_too",
    "test_a_transaction_around_the_block_is_still_open_at_its_end",
    "test_a_transaction_that_failed_may_be_tried_again",
    "test_an_empty_batch_is_nothing",
    "test_an_error_frees_the_message_and_is_counted",
    "test_an_error_undoes_the_block_and_leaves_the_transaction",
    "test_an_error_undoes_the_whole_batch_and_leaves_the_transaction",
    "test_an_expired_mark_counts_for_nothing",
    "test_an_expired_one_counts_as_not_processed",
    "test_another_message_under_a_used_key_is_refused",
    "test_another_message_under_a_used_key_refuses_the_batch",
    "test_complete_is_said_once_and_to_no_other_connection",
    "test_completed_by_itself_or_with_the_end_of_the_block",
    "test_completed_in_the_transaction_of_the_business",
    "test_consumers_do_not_share_marks",
    "test_consumers_have_marks_of_their_own",
    "test_each_message_of_a_batch_is_processed_once",
    "test_ids_of_any_characters_and_length",
    "test_messages_that_failed_or_lapsed_are_taken_over",
    "test_one_in_progress_elsewhere_refuses_the_batch",
    "test_only_the_owner_renews_and_what_is_gone_is_lost",
    "test_only_who_owns_a_mark_ends_it",
    "test_the_life_of_a_mark",
    "test_the_second_takes_over_as_soon_as_the_first_rolls_back",
    "test_the_second_waits_for_the_first_and_gets_its_result",
    "test_two_messages_in_one_transaction",
    "test_what_is_no_key",
    "test_whoever_lost_the_lease_cannot_complete_and_its_write_is_rolled_back",
]


@pytest.fixture(params=WAYS)
def way(request, inbox_url):
    way = WAYS[request.param](inbox_url)
    yield way
    way.close()


@pytest.fixture
def way_of(inbox_url):
    """The tests of one driver alone run with PyMySQL here."""
    return lambda _: WAYS["pymysql"](inbox_url)


@pytest.fixture
def table(inbox_url):
    with closing(Table(MySQLConnections(inbox_url), 0)) as table:
        yield table
