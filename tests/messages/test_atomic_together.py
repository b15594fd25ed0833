"""Two deliveries of one message at the same time, each in a transaction of its own."""

import psycopg
import pytest

from oncekey import InProgressError
from oncekey.messages import Message
from oncekey.messages.pipeline import names_on
from tests.messages.together import aside, until_blocked

ORDER = Message(id="m-1", type="order.placed")
SERVERS = ["psycopg", "sqlalchemy", "sqlalchemy core", "django"]


class BrokenError(Exception):
    pass


@pytest.fixture(params=SERVERS)
def way(request, way_of):
    return way_of(request.param)


def process(way, inbox, name):
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        if not delivery.duplicate:
            way.write(connection, name)
            delivery.complete(name)
        return delivery.duplicate, delivery.result


@pytest.mark.row("M6")
def test_the_second_waits_for_the_first_and_gets_its_result(way, inbox):
    inbox.migrate()
    with aside() as start:
        with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
            second = start(process, way, inbox, "second")
            until_blocked(way)
            way.write(connection, "first")
            delivery.complete("first")
        assert second.result() == (True, "first")
    assert way.orders() == ["first"]


@pytest.mark.row("M6")
def test_the_second_takes_over_as_soon_as_the_first_rolls_back(way, inbox):
    inbox.migrate()
    with aside() as start:
        with pytest.raises(BrokenError), way.transaction() as connection:
            with inbox.atomic(connection, ORDER):
                way.write(connection, "first")
                second = start(process, way, inbox, "second")
                until_blocked(way)
            raise BrokenError
        assert second.result() == (False, "second")
    assert way.orders() == ["second"]


def test_an_error_in_the_block_frees_the_message_before_the_transaction_ends(way, inbox):
    inbox.migrate()
    with aside() as start, way.transaction() as connection:
        with pytest.raises(BrokenError), inbox.atomic(connection, ORDER):
            second = start(process, way, inbox, "second")
            until_blocked(way)
            raise BrokenError
        assert second.result() == (False, "second")


def test_a_duplicate_does_not_hold_up_others_like_it(way, inbox):
    process(way, inbox, "first")
    with aside() as start, way.transaction() as connection:
        with inbox.atomic(connection, ORDER) as delivery:
            assert delivery.duplicate
        assert start(process, way, inbox, "third").result() == (True, "first")


def test_a_lock_timeout_turns_waiting_into_in_progress_and_is_restored(way, open_inbox):
    patient, hasty = open_inbox(way.url), open_inbox(way.url, lock_timeout="50ms")
    patient.migrate()
    with (
        way.transaction() as connection,
        patient.atomic(connection, ORDER),
        way.transaction() as other,
    ):
        with pytest.raises(InProgressError) as refused, hasty.atomic(other, ORDER):
            pass
        assert refused.value.retry_after == 1.0
        assert way.lock_timeout(other) == "0"
        with hasty.atomic(other, Message(id="m-2")):
            assert way.lock_timeout(other) == "0"
    assert [row[1] for row in way.marks()] == ["m-1", "m-2"]


def test_a_serialization_failure_is_worth_another_try_and_no_failure(way_of, open_inbox):
    way = way_of("psycopg")
    inbox = open_inbox(way.url, max_attempts=1)
    inbox.migrate()
    with psycopg.connect(way.url) as late:
        late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        late.execute("SELECT 1 FROM orders")  # its snapshot is older than the mark
        assert process(way, inbox, "first") == (False, "first")
        with pytest.raises(InProgressError) as refused, inbox.atomic(late, ORDER):
            pass
        assert refused.value.__cause__.sqlstate == "40001"
    assert way.marks() == [("billing", "m-1", "completed", 1, None)]


def test_a_deadlock_of_the_business_is_not_counted(way_of, open_inbox):
    way = way_of("psycopg")
    letters = []
    inbox = open_inbox(way.url, max_attempts=1, dead_letter=letters.append)
    with (
        way.transaction() as connection,
        pytest.raises(psycopg.errors.DeadlockDetected),
        inbox.atomic(connection, ORDER),
    ):
        raise psycopg.errors.DeadlockDetected
    assert way.marks() == []
    assert letters == []


def test_what_is_prepared_may_be_forgotten_at_any_time(way_of, open_inbox):
    way = way_of("psycopg")
    inbox = open_inbox(way.url)
    forget = {"before": 1, "inside": 2, "never": 3, "again": 4, "rolled back": 5}
    with psycopg.connect(way.url, autocommit=True) as connection:
        for when, number in forget.items():
            if when in ("before", "again"):
                connection.execute("DEALLOCATE ALL")
            message = Message(id=f"m-{number}")
            with connection.transaction(), inbox.atomic(connection, message) as delivery:
                way.write(connection, number)
                if when == "inside":
                    connection.execute("DEALLOCATE ALL")
                if when == "rolled back":  # psycopg has everything forgotten then
                    with pytest.raises(BrokenError), connection.transaction():
                        raise BrokenError
                    connection.execute("SELECT 1")
                delivery.complete(number)
            with connection.transaction(), inbox.atomic(connection, message) as delivery:
                assert delivery.result == number
    assert way.orders() == ["1", "2", "3", "4", "5"]


def test_a_user_who_lets_nothing_be_prepared(way_of, open_inbox):
    way = way_of("psycopg")
    inbox = open_inbox(way.url)
    with psycopg.connect(way.url, autocommit=True, prepare_threshold=None) as connection:
        for number in range(3):
            with connection.transaction(), inbox.atomic(connection, Message(id=f"m-{number}")):
                way.write(connection, number)
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert way.orders() == ["0", "1", "2"]


def test_statements_that_a_pooler_has_prepared_already(way_of, open_inbox):
    way = way_of("psycopg")
    inbox = open_inbox(way.url)
    with psycopg.connect(way.url, autocommit=True) as connection:
        for number in range(4):
            if number == 2:
                names_on(connection).clear()
            with connection.transaction(), inbox.atomic(connection, Message(id=f"m-{number}")):
                way.write(connection, number)
    assert way.orders() == ["0", "1", "2", "3"]
