"""What the inbox refuses, and what it says then."""

import asyncio
import sqlite3
from contextlib import closing

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from oncekey import ConfigurationError, InvalidKeyError, Once, StoreError
from oncekey.messages import AsyncInbox, Inbox, Message
from oncekey.stores import PostgresStore

ORDER = Message(id="m-1")
OTHER = Message(id="m-2")


def refuses(inbox, connection, words):
    with pytest.raises(ConfigurationError, match=words), inbox.atomic(connection, ORDER):
        pass


def test_connections_outside_a_transaction(postgres_url, sqlite_url, open_inbox):
    inbox = open_inbox(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        refuses(inbox, connection, "is in none; begin one first")
    with psycopg.connect(postgres_url) as connection:
        refuses(inbox, connection, "is in none; begin one first")
    engine = sa.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        refuses(inbox, session, "is in none; begin one first")
    with engine.connect() as connection:
        refuses(inbox, connection, "is in none; begin one first")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        refuses(open_inbox(sqlite_url), connection, "is in none; begin one first")
    engine.dispose()


def test_a_session_that_commits_each_statement(postgres_url, open_inbox):
    url = postgres_url.replace("postgresql:", "postgresql+psycopg:")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with Session(engine) as session, session.begin():
        refuses(open_inbox(postgres_url), session, "is in none; begin one first")
    engine.dispose()


def test_a_transaction_that_has_failed(postgres_url, open_inbox):
    with psycopg.connect(postgres_url) as connection:
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT * FROM nowhere")
        refuses(open_inbox(postgres_url), connection, "is in none")
        connection.rollback()


def test_a_pipeline(postgres_url, open_inbox):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("SELECT 1")
        with connection.pipeline():
            refuses(open_inbox(postgres_url), connection, "not in a pipeline")


def test_connections_to_another_database(postgres, postgres_url, tmp_path, open_inbox):
    inbox = open_inbox(postgres_url)
    elsewhere = postgres.new_database()
    with psycopg.connect(elsewhere) as connection:
        connection.execute("SELECT 1")
        refuses(inbox, connection, "another database")
    open_inbox(elsewhere).migrate()
    with psycopg.connect(elsewhere) as connection:
        connection.execute("SELECT 1")
        refuses(inbox, connection, "another database")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("BEGIN")
        refuses(inbox, connection, "another database")


def test_another_schema_of_the_same_database(postgres_url, open_inbox):
    inbox = open_inbox(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA tenant")
    open_inbox(f"{postgres_url}?options=-csearch_path%3Dtenant").migrate()
    with psycopg.connect(postgres_url) as connection:
        with inbox.atomic(_begun(connection), ORDER):
            pass
        connection.execute("SET LOCAL search_path = tenant")
        refuses(inbox, connection, "another database")


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_a_table_that_was_dropped_is_made_by_the_next_process(way_of, open_inbox, name):
    """Until then nothing is processed."""
    way = way_of(name)
    inbox = open_inbox(way.url)
    with inbox.leased(ORDER):
        pass
    way.execute("DROP TABLE processed_messages")
    with pytest.raises(StoreError, match="processed_messages"), inbox.leased(ORDER):
        raise AssertionError
    if name == "psycopg":  # an atomic block on SQLite makes it
        with way.transaction() as connection:
            refuses(inbox, connection, "the table was dropped")
    open_inbox(way.url).migrate()
    with inbox.leased(ORDER) as delivery, way.transaction() as connection:
        way.write(connection, "7")
        delivery.complete(connection=connection)
    with way.transaction() as connection, inbox.atomic(connection, OTHER):
        way.write(connection, "8")
    for _ in range(2):
        with way.transaction() as connection, inbox.atomic(connection, OTHER) as delivery:
            assert delivery.duplicate
    assert way.orders() == ["7", "8"]


def _begun(connection):
    connection.execute("SELECT 1")
    return connection


def test_connections_to_another_file(tmp_path, open_inbox):
    inbox = open_inbox(f"sqlite:///{tmp_path / 'shop.db'}")
    for made in (False, True):
        if made:
            open_inbox(f"sqlite:///{tmp_path / 'other.db'}").migrate()
            inbox.migrate()
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("BEGIN")
            refuses(inbox, connection, "another database")
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("BEGIN")
        refuses(inbox, connection, "another database")


def test_a_completion_on_another_database_is_refused_too(postgres, postgres_url, open_inbox):
    elsewhere = postgres.new_database()
    open_inbox(elsewhere).migrate()
    with (
        psycopg.connect(elsewhere) as connection,
        pytest.raises(ConfigurationError, match="another database"),
        open_inbox(postgres_url).leased(ORDER) as delivery,
    ):
        connection.execute("SELECT 1")
        delivery.complete(connection=connection)


async def test_the_other_colour(postgres_url, open_inbox):
    async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
        refuses(open_inbox(postgres_url), connection, "use AsyncInbox")
    with (
        psycopg.connect(postgres_url) as connection,
        pytest.raises(ConfigurationError, match="use Inbox"),
    ):
        AsyncInbox(postgres_url, "billing").atomic(connection, ORDER)


def test_what_is_no_connection(postgres_url, open_inbox):
    refuses(open_inbox(postgres_url), object(), "but not object")


def test_atomic_mode_without_a_table(open_inbox):
    refuses(open_inbox("memory://"), sqlite3, "shares no transaction")


def test_a_table_of_somebody_else(postgres_url, sqlite_url, open_inbox):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE processed_messages (idempotency_key text)")
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("CREATE TABLE processed_messages (idempotency_key text)")
    for url in (postgres_url, sqlite_url):
        with pytest.raises(ConfigurationError, match="did not make"):
            open_inbox(url).migrate()


def test_a_table_of_a_newer_release(postgres_url, sqlite_url, way_of, open_inbox):
    for name in ("psycopg", "sqlite3"):
        way = way_of(name)
        open_inbox(way.url).migrate()
        way.execute("UPDATE processed_messages_schema SET version = 7, oldest = 1")
        open_inbox(way.url).migrate()
        way.execute("UPDATE processed_messages_schema SET oldest = 7")
        with pytest.raises(ConfigurationError, match="upgrade oncekey"):
            open_inbox(way.url).migrate()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"consumer": ""}, "name of its consumer"),
        ({"key": "message_id"}, "key must be a function"),
        ({"on_missing_key": "skip"}, "on_missing_key must be one of"),
        ({"fingerprint": "body"}, "fingerprint must be a function"),
        ({"dead_letter": "queue"}, "dead_letter must be a function"),
        ({"dead_letter": asyncio.sleep}, "nobody would await dead_letter"),
        ({"lock_timeout": "1s"}, "lock_timeout is for PostgreSQL and MySQL"),
        ({"max_attempts": 0}, "max_attempts must be"),
        ({"grace": "soon"}, "grace must be a duration"),
    ],
)
def test_settings_that_make_no_sense(sqlite_url, options, words):
    with pytest.raises(ConfigurationError, match=words):
        Inbox(sqlite_url, **{"consumer": "billing", **options})


def test_targets_that_make_no_sense(postgres_url):
    with pytest.raises(ConfigurationError, match="Once or the URL"):
        Inbox(42, "billing")
    with psycopg.connect(postgres_url) as connection:
        once = Once(PostgresStore(connection))
        with pytest.raises(ConfigurationError, match="connections of its own"):
            Inbox(once, "billing")


def test_a_message_without_an_id_names_what_it_lacks(sqlite_url, open_inbox):
    message = Message(body=b"{}", lacks="the AMQP property message_id")
    with pytest.raises(InvalidKeyError, match="AMQP property message_id"):
        open_inbox(sqlite_url).leased(message)


def test_attempts_on_sqlite_are_counted_by_the_broker(way_of, open_inbox):
    way = way_of("sqlite3")
    with way.transaction() as connection:
        refuses(open_inbox(way.url, max_attempts=3), connection, "broker's count")
