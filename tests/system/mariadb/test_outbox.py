"""A message is kept in the transaction of the caller, with each driver of MariaDB."""

import pytest

from tests.outbox.conftest import open_outbox, outbox
from tests.outbox.test_put import (
    test_a_body_is_kept_as_bytes,
    test_a_message_is_committed_with_the_work,
    test_a_rollback_takes_the_message_with_it,
    test_a_second_message_with_an_id_is_not_kept,
    test_an_attempt_that_runs_again_makes_no_second_message,
    test_messages_are_numbered_in_the_order_of_their_puts,
)
from tests.system.mariadb.ways import WAYS

__all__ = [
    "open_outbox",
    "outbox",
    "test_a_body_is_kept_as_bytes",
    "test_a_message_is_committed_with_the_work",
    "test_a_rollback_takes_the_message_with_it",
    "test_a_second_message_with_an_id_is_not_kept",
    "test_an_attempt_that_runs_again_makes_no_second_message",
    "test_messages_are_numbered_in_the_order_of_their_puts",
]


@pytest.fixture(params=WAYS)
def way(request, inbox_url):
    way = WAYS[request.param](inbox_url)
    yield way
    way.close()
