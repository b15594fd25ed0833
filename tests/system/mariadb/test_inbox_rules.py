"""What MySQL and MariaDB do otherwise than PostgreSQL, and what the inbox makes of it."""

from contextlib import closing, contextmanager
from itertools import pairwise

import pymysql
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from oncekey import ConfigurationError, InProgressError, Once, StoreError
from oncekey.messages import Inbox, Message
from oncekey.messages.connections.base import plain_url
from oncekey.messages.purge import due_messages, purge_messages
from tests.messages.conftest import open_inbox
from tests.messages.together import aside, until_blocked
from tests.system.mariadb.ways import FIRST, WAYS, settings

__all__ = ["open_inbox"]

ORDER = Message(id="m-1", type="order.placed")


class BrokenError(Exception):
    pass


@pytest.fixture(params=WAYS)
def way(request, inbox_url):
    way = WAYS[request.param](inbox_url)
    yield way
    way.close()


@pytest.fixture
def inbox(inbox_url, open_inbox):
    return open_inbox(inbox_url)


@contextmanager
def connected(url, *statements, **options):
    """A connection of PyMySQL that has been told something, and is in a transaction."""
    with closing(pymysql.connect(**settings(url), **options)) as connection:
        for statement in (*statements, "BEGIN"):
            run(connection, statement)
        yield connection
        connection.commit()


def run(connection, statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def process(way, inbox, name, message=ORDER):
    with way.transaction() as connection, inbox.atomic(connection, message) as delivery:
        if not delivery.duplicate:
            way.write(connection, name)
            delivery.complete(name)
        return delivery.duplicate, delivery.result


KEYS = [
    "a",
    "A",
    "a ",
    "\N{LATIN SMALL LETTER A WITH DIAERESIS}",
    "a\N{COMBINING DIAERESIS}",
    "a\0",
]


@pytest.mark.parametrize(
    "charset", ["utf8mb4", "latin1"], ids=["as everybody has it", "that has few letters"]
)
def test_keys_are_compared_byte_by_byte_whatever_the_connection_speaks(inbox_url, inbox, charset):
    way = WAYS["pymysql"](inbox_url)
    with connected(inbox_url, charset=charset) as connection:
        for key in KEYS:
            with inbox.atomic(connection, Message(id=key)) as delivery:
                assert not delivery.duplicate
                delivery.complete(f"receipt of {key}")
    for key in KEYS:
        assert process(way, inbox, "again", Message(id=key)) == (True, f"receipt of {key}")
        assert inbox.is_processed(key)
    assert way.orders() == []


SESSIONS = [
    "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET SESSION sql_mode = 'SIMULTANEOUS_ASSIGNMENT'",
    "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,TRADITIONAL'",
    "SET SESSION time_zone = '+13:00'",
]


@pytest.mark.parametrize("said", SESSIONS, ids=lambda one: one.partition("SESSION ")[2])
def test_whatever_the_session_was_told(inbox_url, inbox, open_inbox, said):
    """New, a duplicate that waited, one that had failed, and one that ran out."""
    other = open_inbox(inbox_url, "shipping")
    way = WAYS["pymysql"](inbox_url)
    other.mark_failed(other.mark_processing("m-1"), "no")
    with connected(inbox_url, said) as first, connected(inbox_url, said) as second:
        run(second, "SELECT * FROM orders")

        def duplicate():
            with inbox.atomic(second, ORDER) as delivery:
                return delivery.duplicate, delivery.result

        with aside() as start:
            with inbox.atomic(first, ORDER) as delivery:
                waiting = start(duplicate)
                until_blocked(way)
                delivery.complete("first's")
            first.commit()
            assert waiting.result() == (True, "first's")
        with other.atomic(second, ORDER) as delivery:
            assert (delivery.duplicate, delivery.number) == (False, 2)
            delivery.complete({"a": "\N{EURO SIGN}\\'\""})
    with connected(inbox_url, said) as third, other.atomic(third, ORDER) as delivery:
        assert delivery.result == {"a": "\N{EURO SIGN}\\'\""}
    assert [row[2:] for row in way.marks()] == [("completed", 1, None), ("completed", 2, None)]
    times = way.execute(
        "SELECT started_at, completed_at, expires_at FROM processed_messages WHERE attempt = 2"
    )
    assert all(early < late for early, late in pairwise(times[0]))
    (now,) = way.execute("SELECT UTC_TIMESTAMP(6)")[0]
    assert abs((times[0][1] - now).total_seconds()) < 3600


def test_rows_as_the_user_has_them(inbox_url, inbox):
    with connected(inbox_url, cursorclass=pymysql.cursors.DictCursor) as connection:
        for expected in (False, True):
            with inbox.atomic(connection, ORDER) as delivery:
                assert delivery.duplicate is expected


def test_a_snapshot_that_may_not_be_left_is_worth_another_try(way, inbox):
    """As MariaDB 11.8 has it by default. The transaction is over then."""
    with pytest.raises(BrokenError), way.transaction() as connection:
        _run_on(connection, "SET SESSION innodb_snapshot_isolation = ON")
        _run_on(connection, FIRST)
        with connected(way.url) as other, inbox.atomic(other, ORDER):
            pass
        with pytest.raises(Exception, match="Record has changed") as refused:
            inbox.atomic(connection, ORDER).__enter__()
        raise BrokenError
    assert "whole transaction" in refused.value.__notes__[0]


def _run_on(connection, statement):
    if isinstance(connection, Session | sa.Connection):
        connection.execute(sa.text(statement))
        return
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_lock_timeout_turns_waiting_into_in_progress_and_is_restored(way, open_inbox):
    patient, hasty = open_inbox(way.url), open_inbox(way.url, lock_timeout="50ms")
    with (
        way.transaction() as connection,
        patient.atomic(connection, ORDER),
        way.transaction() as other,
    ):
        with pytest.raises(InProgressError), hasty.atomic(other, ORDER):
            pass
        assert way.lock_timeout(other) == 50
        with hasty.atomic(other, Message(id="m-2")):
            assert way.lock_timeout(other) == 50
        way.write(other, "after")
    assert way.orders() == ["after"]
    assert [row[1] for row in way.marks()] == ["m-1", "m-2"]


def test_two_who_wait_for_one_that_rolls_back(way, inbox):
    """InnoDB lets one of them in. The other's whole transaction is over, and it is told so.

    It is not told that the message is in progress: it would go on without what it did before.
    """

    def attempt(name):
        try:
            with way.transaction() as connection:
                way.write(connection, f"before {name}")
                if hasattr(connection, "flush"):
                    connection.flush()
                with inbox.atomic(connection, ORDER) as delivery:
                    if not delivery.duplicate:
                        way.write(connection, name)
        except Exception as error:  # noqa: BLE001 - it is looked at
            return error
        return delivery.duplicate

    with aside() as start:
        with pytest.raises(BrokenError), way.transaction() as connection:
            with inbox.atomic(connection, ORDER):
                waiting = []
                for name in ("one", "two"):
                    waiting.append(start(attempt, name))
                    until_blocked(way, len(waiting))
            raise BrokenError
        ended = sorted((one.result() for one in waiting), key=str)
    errors = [one for one in ended if isinstance(one, Exception)]
    assert not any(isinstance(one, InProgressError) for one in errors)
    assert [("1213" in str(one), "whole transaction" in one.__notes__[0]) for one in errors] == [
        (True, True)
    ] * len(errors)
    assert sum(order in ("one", "two") for order in way.orders()) == 1
    assert len(way.orders()) == 2 * (2 - len(errors)) - ended.count(True)
    assert [row[2] for row in way.marks()] == ["completed"]


def test_a_duplicate_keeps_others_like_it_waiting_until_its_transaction_ends(way, inbox):
    """A savepoint that is rolled back gives no lock up."""
    process(way, inbox, "first")
    with aside() as start:
        with way.transaction() as connection:
            with inbox.atomic(connection, ORDER) as delivery:
                assert delivery.duplicate
            third = start(process, way, inbox, "third")
            until_blocked(way)
        assert third.result() == (True, "first")


def test_connections_outside_a_transaction(inbox_url, inbox):
    def refused(connection):
        with (
            pytest.raises(ConfigurationError, match="is in none; begin one first"),
            inbox.atomic(connection, ORDER),
        ):
            pass

    with closing(pymysql.connect(**settings(inbox_url), autocommit=True)) as connection:
        refused(connection)
        connection.begin()
        connection.rollback()
        refused(connection)
    url = inbox_url.replace("mysql:", "mysql+pymysql:")
    engine = sa.create_engine(url)
    with Session(engine) as session:
        refused(session)
    engine.dispose()
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with Session(engine) as session, session.begin():
        refused(session)
    engine.dispose()


def test_a_connection_without_autocommit_is_in_a_transaction(inbox_url, inbox):
    way = WAYS["pymysql"](inbox_url)
    with closing(pymysql.connect(**settings(inbox_url))) as connection:
        with inbox.atomic(connection, ORDER):
            way.write(connection, "7")
        connection.rollback()
        assert (way.orders(), way.marks()) == ([], [])
        with inbox.atomic(connection, ORDER):
            way.write(connection, "7")
        connection.commit()
    assert way.orders() == ["7"]


def test_the_first_use_commits_nothing_of_the_users(new_url, open_inbox):
    """MySQL commits when a table is made, so that no other connection than its own makes it."""
    way, inbox = WAYS["pymysql"](new_url), open_inbox(new_url)
    way.execute("CREATE TABLE orders (number VARCHAR(64) NOT NULL)")
    with connected(new_url) as connection:
        way.write(connection, "before")
        with inbox.atomic(connection, ORDER):
            way.write(connection, "inside")
        connection.rollback()
    assert (way.orders(), way.marks()) == ([], [])


def test_a_transaction_that_is_older_than_the_table_is_told_so(new_url, open_inbox):
    way, inbox = WAYS["pymysql"](new_url), open_inbox(new_url)
    way.execute("CREATE TABLE orders (number VARCHAR(64) NOT NULL)")
    for again in (False, True):
        with connected(new_url) as connection:
            run(connection, FIRST)
            way.write(connection, again)
            if again:
                with inbox.atomic(connection, ORDER) as delivery:
                    assert not delivery.duplicate
                continue
            with (
                pytest.raises(StoreError, match="begin another transaction, and call migrate"),
                inbox.atomic(connection, ORDER),
            ):
                pass
            connection.rollback()
    assert way.orders() == ["True"]


ENDS = {"commit": "COMMIT", "a table": "CREATE TABLE IF NOT EXISTS implicit (number INT)"}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("before", [True, False], ids=["then nothing", "then more"])
@pytest.mark.parametrize("begins", [True, False], ids=["begun", "without autocommit"])
def test_a_commit_inside_the_block_is_noticed_and_nothing_is_done_twice(
    inbox_url, open_inbox, end, before, begins
):
    """A table that is made commits too. What was committed with the claim is not done again."""
    way, letters = WAYS["pymysql"](inbox_url), []
    inbox = open_inbox(inbox_url, dead_letter=letters.append)
    with closing(pymysql.connect(**settings(inbox_url), autocommit=begins)) as connection:
        if begins:
            connection.begin()
        with (
            pytest.raises(ConfigurationError, match="inside the block"),
            inbox.atomic(connection, ORDER) as delivery,
        ):
            way.write(connection, "7")
            delivery.complete("done")
            run(connection, end)
            if not before:
                connection.begin()
                way.write(connection, "8")
        connection.rollback()
    assert "7" in way.orders()
    (mark,) = way.marks()
    assert mark[2] in ("completed", "failed")
    assert len(letters) == (mark[2] == "failed")
    with way.transaction() as connection, inbox.atomic(connection, ORDER) as delivery:
        assert delivery.duplicate
        assert delivery.dead == bool(letters)


def test_a_table_without_transactions_is_refused(new_url, open_inbox):
    open_inbox(new_url).migrate()
    way = WAYS["pymysql"](new_url)
    way.execute("ALTER TABLE processed_messages_schema ENGINE = MyISAM")
    for begin in (lambda inbox: inbox.migrate(), lambda inbox: inbox.mark_processing("m-1")):
        with pytest.raises(ConfigurationError, match="MyISAM, which has no transactions"):
            begin(open_inbox(new_url))
    assert way.marks() == []


def test_a_table_of_somebody_else_is_refused(new_url, open_inbox):
    WAYS["pymysql"](new_url).execute("CREATE TABLE processed_messages (id INT)")
    with pytest.raises(ConfigurationError, match="that the inbox did not make"):
        open_inbox(new_url).migrate()


@pytest.mark.parametrize("left", ["UPDATE {} SET version = 0", "DELETE FROM {}"])
def test_a_migration_that_was_cut_off_is_done_again(new_url, open_inbox, left):
    way = WAYS["pymysql"](new_url)
    open_inbox(new_url).migrate()
    way.execute("DROP TABLE processed_messages")
    way.execute(left.format("processed_messages_schema"))
    open_inbox(new_url).mark_processing("m-1")
    assert way.execute("SELECT version FROM processed_messages_schema") == [(1,)]
    assert len(way.marks()) == 1


def test_connections_to_another_database(inbox_url, new_url, open_inbox):
    inbox = open_inbox(inbox_url)

    def refused():
        with (
            connected(new_url) as connection,
            pytest.raises(ConfigurationError, match="another database"),
            inbox.atomic(connection, ORDER),
        ):
            pass

    refused()
    open_inbox(new_url).migrate()
    refused()
    assert WAYS["pymysql"](new_url).marks() == []
    with (
        connected(new_url) as connection,
        pytest.raises(ConfigurationError, match="another database"),
        inbox.leased(ORDER) as delivery,
    ):
        delivery.complete(connection=connection)


def test_attempts_in_atomic_mode_are_counted_by_the_broker(inbox_url, open_inbox):
    way, letters = WAYS["pymysql"](inbox_url), []
    inbox = open_inbox(inbox_url, max_attempts=2, dead_letter=letters.append)
    with (
        way.transaction() as connection,
        pytest.raises(ConfigurationError, match="MySQL needs the broker's count"),
        inbox.atomic(connection, ORDER),
    ):
        pass
    for number in (1, 2):
        with (
            pytest.raises(BrokenError),
            way.transaction() as connection,
            inbox.atomic(connection, Message(id="m-1", deliveries=number)),
        ):
            raise BrokenError
    with (
        way.transaction() as connection,
        inbox.atomic(connection, Message(id="m-1", deliveries=3)) as delivery,
    ):
        assert delivery.dead
    assert [one.attempts for one in letters] == [2]


def test_a_purge_leaves_out_what_is_locked(inbox_url, inbox):
    way = WAYS["pymysql"](inbox_url)
    for number in range(4):
        inbox.mark_completed(inbox.mark_processing(f"m-{number}"))
    way.execute("UPDATE processed_messages SET expires_at = '2026-01-01 00:00:00'")
    assert due_messages(inbox_url) == 4
    with connected(inbox_url) as connection, inbox.atomic(connection, ORDER):
        assert purge_messages(inbox_url) == 3
    assert [row[1] for row in way.marks()] == ["m-1"]
    assert purge_messages(inbox_url) == 0


def test_looking_makes_no_table(new_url):
    assert (due_messages(new_url), purge_messages(new_url)) == (None, 0)
    with pytest.raises(pymysql.ProgrammingError, match="processed_messages"):
        WAYS["pymysql"](new_url).marks()


def test_the_database_of_a_once(new_url, open_inbox):
    once = Once(new_url)
    inbox = Inbox(once, "billing")
    with inbox.leased(ORDER) as delivery:
        delivery.complete("done")
    assert inbox.is_processed("m-1")
    inbox.close()
    once.close()


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("mysql+pymysql://a:b%40@h/d?charset=utf8mb4", "mysql://a:b%40@h/d"),
        ("mariadb+asyncmy://h/d?ssl_ca=/x&charset=utf8", "mariadb://h/d?ssl_ca=/x"),
        ("mysql+mysqldb://h/d", "mysql://h/d"),
    ],
)
def test_urls_of_sqlalchemy_are_understood(url, plain):
    assert plain_url(url) == plain
