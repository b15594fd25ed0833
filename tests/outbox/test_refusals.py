"""What the outbox refuses, and that nothing is written then."""

import sqlite3
from contextlib import closing

import psycopg
import pytest

from oncekey import ConfigurationError, InvalidKeyError, Once
from oncekey.outbox import AsyncOutbox, Message, Outbox

PAID = Message(type="order.paid", body={"order": 7})


def refuses(outbox, connection, words):
    with pytest.raises(ConfigurationError, match=words):
        outbox.put(connection, PAID, to="orders.paid")


def test_connections_outside_a_transaction(postgres_url, sqlite_url, open_outbox):
    outbox = open_outbox(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        refuses(outbox, connection, "is in none; begin one first")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        refuses(open_outbox(sqlite_url), connection, "is in none; begin one first")
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT 1")
        with connection.pipeline():
            refuses(outbox, connection, "not in a pipeline")


def test_connections_to_another_database(postgres, postgres_url, tmp_path, open_outbox):
    outbox, elsewhere = open_outbox(postgres_url), postgres.new_database()
    with psycopg.connect(elsewhere) as connection:
        connection.execute("SELECT 1")
        refuses(outbox, connection, "table outbox_messages of this outbox, but to another")
    open_outbox(elsewhere).migrate()
    with psycopg.connect(elsewhere) as connection:
        connection.execute("SELECT 1")
        refuses(outbox, connection, "another database")
        with pytest.raises(ConfigurationError, match="another database"):
            outbox.put(connection, PAID, to="orders.paid", key="7")
        connection.prepare_threshold = None  # it goes another way then
        refuses(outbox, connection, "another database")
        assert connection.execute("SELECT count(*) FROM outbox_messages").fetchone() == (0,)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("BEGIN")
        refuses(outbox, connection, "another database")


def test_another_file(sqlite_url, tmp_path, open_outbox):
    outbox = open_outbox(sqlite_url)
    outbox.migrate()
    other = open_outbox(f"sqlite:///{tmp_path / 'other.db'}")
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        refuses(outbox, connection, "another database")
        assert other.put(connection, PAID, to="orders.paid")


def test_what_is_no_connection_of_this_colour(postgres_url, open_outbox):
    with pytest.raises(ConfigurationError, match="but not str"):
        open_outbox(postgres_url).put("connection", PAID, to="orders.paid")
    with (
        psycopg.connect(postgres_url) as connection,
        pytest.raises(ConfigurationError, match="is for blocking code; use Outbox"),
    ):
        AsyncOutbox(postgres_url).put(connection, PAID, to="orders.paid").send(None)


@pytest.mark.parametrize("target", ["memory://", "redis://localhost", Once("memory://")])
def test_what_has_no_transactions(target):
    with pytest.raises(ConfigurationError, match="needs PostgreSQL, MySQL, MariaDB or SQLite"):
        Outbox(target)


def test_a_message_that_cannot_be_sent(way_of, open_outbox):
    way = way_of("sqlite3")
    outbox = open_outbox(way.url, destinations=["orders.*", "mail"], max_size=100)
    with way.transaction() as connection:
        for message, options, words in (
            (PAID, {"to": "payments"}, "none of the destinations of this outbox: orders"),
            (PAID, {"to": "mails"}, "none of the destinations"),
            (PAID, {"to": "orders.paid", "key": 7}, "a key must be a string, but it is int"),
            (PAID, {"to": "orders.paid", "key": ""}, "must be text that is not empty"),
            (PAID, {"to": "orders.paid", "key": "7", "after": 1}, "cannot have after="),
            (PAID, {"to": "orders.paid", "after": -1}, "after"),
            (Message(body=b"x" * 99), {"to": "mail"}, "101 bytes, and the outbox takes at most"),
            ({"order": 7}, {"to": "mail"}, "takes a Message"),
        ):
            with pytest.raises((ConfigurationError, InvalidKeyError), match=words):
                outbox.put(connection, message, **options)
        outbox.put(connection, PAID, to="orders.paid")
        outbox.put(connection, PAID, to="mail")
    assert way.execute("SELECT destination FROM outbox_messages ORDER BY number") == [
        ("orders.paid",),
        ("mail",),
    ]


@pytest.mark.parametrize("patterns", ["orders.*", ["*.paid"], [""], [7], 7])
def test_destinations_that_are_none(patterns):
    with pytest.raises(ConfigurationError, match="destination"):
        Outbox("sqlite:///shop.db", destinations=patterns)
