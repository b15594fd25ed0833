"""A poison message in atomic mode: counted outside of the transactions that were rolled back."""

import pytest

from oncekey import RememberedError
from oncekey.messages import Message, dead_letter

ORDER = Message(id="m-1", type="order.placed")


class BrokenError(Exception):
    pass


@pytest.fixture(params=["psycopg", "sqlalchemy", "django"])
def way(request, way_of):
    return way_of(request.param)


def fail(way, inbox, message=ORDER):
    with (
        pytest.raises(BrokenError),
        way.transaction() as connection,
        inbox.atomic(connection, message) as delivery,
    ):
        way.write(connection, "7")
        raise BrokenError("no")
    return delivery.number


def test_attempts_are_counted_although_they_are_rolled_back(way, open_inbox):
    letters = []
    inbox = open_inbox(way.url, max_attempts=3, dead_letter=letters.append)
    assert [fail(way, inbox) for _ in range(2)] == [1, 2]
    assert way.marks() == [("billing", "m-1", "failed", 2, "BrokenError: no")]
    assert letters == []
    assert fail(way, inbox) == 3
    assert [(one.attempts, one.error) for one in letters] == [(3, "BrokenError: no")]
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert (delivery.duplicate, delivery.dead) == (True, True)
        with pytest.raises(RememberedError, match="BrokenError: no"):
            _ = delivery.result
    assert way.orders() == []
    assert len(letters) == 1


def test_a_success_after_failures_is_a_success(way, open_inbox):
    inbox = open_inbox(way.url, max_attempts=3)
    fail(way, inbox)
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert delivery.number == 2
        way.write(connection, "7")
    assert way.marks() == [("billing", "m-1", "completed", 2, None)]
    assert inbox.is_processed("m-1")


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_the_brokers_count_decides_where_there_is_one(way_of, open_inbox, name):
    way, letters = way_of(name), []
    inbox = open_inbox(way.url, max_attempts=3, dead_letter=letters.append)
    assert fail(way, inbox, Message(id="m-1", deliveries=2)) == 2
    assert letters == []
    with (
        way.transaction() as connection,
        inbox.atomic(connection, Message(id="m-1", deliveries=4)) as delivery,
    ):
        assert delivery.dead
    assert [one.attempts for one in letters] == [3]
    assert way.marks()[0][2] == "failed"


def test_without_a_limit_nothing_is_counted(way, inbox):
    fail(way, inbox)
    assert way.marks() == []


def test_a_dead_letter_that_cannot_be_told_is_given_up(way, open_inbox, caplog, monkeypatch):
    """And its message is not processed again."""
    monkeypatch.setattr(dead_letter, "PAUSES", (0, 0))
    letters = []

    def box(letter):
        letters.append(letter)
        raise OSError("down")

    inbox = open_inbox(way.url, max_attempts=1, dead_letter=box)
    fail(way, inbox)
    assert len(letters) == 3
    assert "was given up" in caplog.text
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert delivery.dead


def test_what_is_cut_off_says_nothing_about_the_message(way, open_inbox):
    inbox = open_inbox(way.url, max_attempts=1)
    with (
        pytest.raises(KeyboardInterrupt),
        way.transaction() as connection,
        inbox.atomic(connection, ORDER),
    ):
        raise KeyboardInterrupt
    assert way.marks() == []
