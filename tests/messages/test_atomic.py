"""Atomic mode: claim, business write and completion are one transaction, with every driver."""

import datetime as dt
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass

import psycopg
import pytest
from sqlalchemy.orm import Session

from oncekey import ConfigurationError, KeyReusedError
from oncekey.messages import Message, by_attribute
from tests.messages.ways import Alchemy


@dataclass
class Receipt:
    number: str
    at: dt.date


ORDER = Message(id="m-1", type="order.placed", body=b'{"order": 7}')
RECEIPT = Receipt("r-1", dt.date(2026, 11, 15))


class BrokenError(Exception):
    pass


@pytest.mark.row("M6")
def test_a_duplicate_gets_the_result_and_writes_nothing(way, inbox):
    with way.transaction() as connection:
        with inbox.atomic(connection, ORDER, returns=Receipt) as delivery:
            assert (delivery.duplicate, delivery.number, delivery.key) == (False, 1, "m-1")
            way.write(connection, "7")
            delivery.complete(RECEIPT)
        assert delivery.result == RECEIPT
    with (
        way.transaction() as connection,
        inbox.atomic(connection, ORDER, returns=Receipt) as delivery,
    ):
        assert delivery.duplicate
        assert delivery.result == RECEIPT
        assert delivery.result is not delivery.result
    assert way.orders() == ["7"]
    assert way.marks() == [("billing", "m-1", "completed", 1, None)]


def test_a_block_that_completes_nothing_completes_with_none(way, inbox):
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        way.write(connection, "7")
    assert delivery.result is None
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert delivery.duplicate
        assert delivery.result is None


@pytest.mark.row("M6")
def test_a_rollback_takes_the_mark_with_it(way, inbox):
    with (
        pytest.raises(BrokenError),
        way.transaction() as connection,
    ):
        with inbox.atomic(connection, ORDER):
            way.write(connection, "7")
        raise BrokenError
    assert way.orders() == []
    assert way.marks() == []
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert not delivery.duplicate


def test_an_error_undoes_the_block_and_leaves_the_transaction(way, inbox):
    with way.transaction() as connection:
        way.write(connection, "before")
        with pytest.raises(BrokenError), inbox.atomic(connection, ORDER):
            way.write(connection, "inside")
            raise BrokenError
        way.write(connection, "after")
    assert way.orders() == ["after", "before"]
    assert way.marks() == []


def test_a_statement_that_fails_inside_is_undone_too(way, inbox):
    with way.transaction() as connection:
        with pytest.raises(Exception, match="nowhere"), inbox.atomic(connection, ORDER):
            way.write(connection, "inside")
            way.fail(connection)
        way.write(connection, "after")
    assert way.orders() == ["after"]


def test_two_messages_in_one_transaction(way, inbox):
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as outer:
        with inbox.atomic(connection, Message(id="m-2")) as inner:
            way.write(connection, "2")
            inner.complete("second")
        way.write(connection, "1")
        outer.complete("first")
    assert way.orders() == ["1", "2"]
    assert [row[1:3] for row in way.marks()] == [("m-1", "completed"), ("m-2", "completed")]


def test_consumers_do_not_share_marks(way, open_inbox):
    for consumer in ("billing", "shipping"):
        inbox = open_inbox(way.url, consumer)
        with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
            assert not delivery.duplicate
            way.write(connection, consumer)
    assert way.orders() == ["billing", "shipping"]


def test_an_expired_mark_counts_for_nothing(way, open_inbox):
    inbox = open_inbox(way.url)
    for number in (1, 2):
        with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
            assert not delivery.duplicate
            way.write(connection, number)
        way.execute("UPDATE processed_messages SET expires_at = '2026-01-01 00:00:00'")
    assert way.orders() == ["1", "2"]
    assert way.marks()[0][3] == 1


ENDS = ["psycopg", "sqlalchemy", "sqlite3", "sqlalchemy on sqlite"]


@contextmanager
def open_transaction(way):
    """A transaction that the block of the user does not end, so that it may be ended inside."""
    if isinstance(way, Alchemy):
        with Session(way.engine) as session:
            session.begin()
            yield session
    elif way.url.startswith("sqlite"):
        with closing(sqlite3.connect(way.path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
    else:
        with closing(psycopg.connect(way.url)) as connection:
            connection.execute("SELECT 1")
            yield connection


def again(way, inbox):
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        return delivery.duplicate, delivery.dead


@pytest.mark.parametrize("name", ENDS)
def test_a_commit_inside_the_block_is_refused_and_nothing_is_done_twice(way_of, open_inbox, name):
    """All of its work is committed, and so is its claim, which would last for the whole ttl."""
    way = way_of(name)
    inbox = open_inbox(way.url)
    with (
        open_transaction(way) as connection,
        pytest.raises(ConfigurationError, match="inside the block"),
        inbox.atomic(connection, ORDER) as delivery,
    ):
        way.write(connection, "7")
        delivery.complete("done")
        connection.commit()
    assert way.orders() == ["7"]
    assert way.marks() == [("billing", "m-1", "completed", 1, None)]
    assert again(way, inbox) == (True, False)


@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy"])
@pytest.mark.parametrize("failed", [False, True])
def test_what_comes_after_a_commit_inside_makes_a_dead_letter(way_of, open_inbox, name, failed):
    """A part of its work is committed: it is neither done again nor forgotten."""
    way, letters = way_of(name), []
    inbox = open_inbox(way.url, dead_letter=letters.append)
    error = BrokenError if failed else ConfigurationError
    with (
        open_transaction(way) as connection,
        pytest.raises(error, match="no" if failed else "inside the block"),
        inbox.atomic(connection, ORDER),
    ):
        way.write(connection, "before")
        connection.commit()
        way.write(connection, "after")
        if failed:
            raise BrokenError("no")
    assert way.orders() == ["before"]
    assert [one.key for one in letters] == ["m-1"]
    assert again(way, inbox) == (True, True)


@pytest.mark.parametrize("name", ENDS)
def test_a_rollback_inside_the_block_is_refused_and_frees_the_message(way_of, open_inbox, name):
    way = way_of(name)
    inbox = open_inbox(way.url)
    with (
        open_transaction(way) as connection,
        pytest.raises(ConfigurationError, match="inside the block"),
        inbox.atomic(connection, ORDER),
    ):
        way.write(connection, "7")
        connection.rollback()
    assert way.orders() == []
    assert again(way, inbox) == (False, False)


def test_another_message_under_a_used_key_is_refused(way, open_inbox):
    inbox = open_inbox(way.url, key=by_attribute(), fingerprint=lambda message: message.body)
    first = Message(id="m-1", attributes={"request_id": "r-1"}, body=b"one")
    other = Message(id="m-2", attributes={"request_id": "r-1"}, body=b"two")
    with way.transaction() as connection:
        with inbox.atomic(connection, first):
            pass
        with inbox.atomic(connection, first) as delivery:
            assert delivery.duplicate
        with pytest.raises(KeyReusedError), inbox.atomic(connection, other):
            pass


def test_a_result_that_cannot_be_kept_is_no_reason_to_run_again(way, inbox, caplog):
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        delivery.complete(RECEIPT)
    assert "returns=" in caplog.text
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert delivery.duplicate
        with pytest.raises(Exception, match="was not kept"):
            _ = delivery.result


def test_complete_is_said_once_and_to_no_other_connection(way, inbox):
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        with pytest.raises(ConfigurationError, match="no result before"):
            _ = delivery.result
        delivery.complete(1)
        with pytest.raises(ConfigurationError, match="completed already"):
            delivery.complete(2)
    with (
        pytest.raises(ConfigurationError, match="its own transaction"),
        way.transaction() as connection,
        inbox.atomic(connection, Message(id="m-2")) as delivery,
    ):
        delivery.complete(1, connection=object())
