"""Marks by key, as plain consumers use them, and the table as plain SQL sees it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from oncekey import InvalidKeyError, LeaseLostError
from oncekey.messages import Inbox, Message
from tests.servers.redis_fixtures import empty_redis, redis_server  # noqa: F401 - fixtures

PURGE = """
DELETE FROM processed_messages
WHERE expires_at < NOW() - INTERVAL '7 days';
"""
COLUMNS = {
    "consumer": ("character varying", 255, "NO"),
    "idempotency_key": ("character varying", 256, "NO"),
    "message_id": ("character varying", 256, "NO"),
    "message_type": ("character varying", 100, "NO"),
    "status": ("character varying", 20, "NO"),
    "started_at": ("timestamp with time zone", None, "NO"),
    "completed_at": ("timestamp with time zone", None, "YES"),
    "error": ("text", None, "YES"),
    "expires_at": ("timestamp with time zone", None, "NO"),
    "created_at": ("timestamp with time zone", None, "NO"),
    "updated_at": ("timestamp with time zone", None, "NO"),
}


@pytest.fixture(params=["psycopg", "sqlite3"])
def way(request, way_of):
    return way_of(request.param)


@pytest.fixture
def table(way_of, open_inbox):
    """The table in PostgreSQL, and an inbox on it."""
    way = way_of("psycopg")
    inbox = open_inbox(way.url)
    inbox.migrate()
    return way, inbox


@pytest.mark.row("M1")
def test_the_life_of_a_mark(way, inbox):
    assert not inbox.is_processed("m-1")
    claim = inbox.mark_processing("m-1", ttl="7d")
    assert (claim.key, claim.number) == ("m-1", 1)
    assert inbox.mark_processing("m-1") is None
    assert not inbox.is_processed("m-1")
    inbox.mark_completed(claim, {"order": 7})
    assert inbox.is_processed("m-1")
    assert inbox.mark_processing("m-1") is None
    with inbox.leased(Message(id="m-1")) as delivery:
        assert delivery.result == {"order": 7}


@pytest.mark.row("M1", "M3")
def test_a_failed_one_may_be_processed_again(way, inbox):
    inbox.mark_processing("m-1")
    inbox.mark_failed("m-1", ValueError("no \0 such order"))
    assert not inbox.is_processed("m-1")
    assert way.marks()[0][2:] == (
        "failed",
        1,
        "ValueError: no \N{REPLACEMENT CHARACTER} such order",
    )
    assert inbox.mark_processing("m-1").number == 2
    inbox.mark_completed("m-1")
    assert inbox.is_processed("m-1")


@pytest.mark.row("M3")
def test_an_expired_one_counts_as_not_processed(way, inbox):
    inbox.mark_completed(inbox.mark_processing("m-1"))
    way.execute("UPDATE processed_messages SET expires_at = '2026-01-01 00:00:00'")
    assert not inbox.is_processed("m-1")
    assert inbox.mark_processing("m-1").number == 1


@pytest.mark.row("M1")
def test_only_who_owns_a_mark_ends_it(way, inbox, open_inbox):
    other = open_inbox(way.url)
    claim = inbox.mark_processing("m-1")
    for end in (other.mark_completed, lambda key: other.mark_failed(key, "no")):
        with pytest.raises(LeaseLostError):
            end("m-1")
    way.execute("UPDATE processed_messages SET lease_end = '2026-01-01 00:00:00'")
    taken = other.mark_processing("m-1")
    for end in (inbox.mark_completed, lambda mine: inbox.mark_failed(mine, "no")):
        with pytest.raises(LeaseLostError):
            end(claim)
    other.mark_completed(taken)
    with pytest.raises(LeaseLostError):
        inbox.mark_completed("m-1")


def test_consumers_have_marks_of_their_own(way, inbox, open_inbox):
    inbox.mark_completed(inbox.mark_processing("m-1"))
    assert open_inbox(way.url, "shipping").mark_processing("m-1") is not None


def test_what_is_no_key(inbox):
    for key in ("", 7, None):
        with pytest.raises(InvalidKeyError):
            inbox.is_processed(key)


def test_ids_of_any_characters_and_length(way, inbox):
    ids = ["häßlich", "with space", "x" * 300, "line\nbreak", "nul\0byte", "a/b:c%d"]
    for one in ids:
        inbox.mark_completed(inbox.mark_processing(one))
    assert all(inbox.is_processed(one) for one in ids)
    assert len(way.marks()) == len(ids)


@pytest.mark.row("M2")
def test_the_table_has_the_columns_that_it_should(table):
    way, _ = table
    found = way.execute(
        "SELECT column_name, data_type, character_maximum_length, is_nullable "
        "FROM information_schema.columns WHERE table_name = 'processed_messages'"
    )
    assert {name: tuple(rest) for name, *rest in found if name in COLUMNS} == COLUMNS
    keys = way.execute(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY (i.indkey) WHERE i.indrelid = 'processed_messages'::regclass "
        "AND i.indisprimary ORDER BY a.attnum"
    )
    assert keys == [("consumer",), ("idempotency_key",)]
    indexes = way.execute("SELECT indexname FROM pg_indexes WHERE tablename = 'processed_messages'")
    assert ("idx_processed_messages_expires_at",) in indexes


@pytest.mark.row("M2", "M5")
def test_plain_sql_reads_writes_and_purges(table):
    way, inbox = table
    inbox.mark_completed(inbox.mark_processing("m-1", ttl="24h"))
    ((status, completed, expires, kind),) = way.execute(
        "SELECT status, completed_at, expires_at, message_type FROM processed_messages "
        "WHERE idempotency_key = 'm-1'"
    )
    assert status == "completed"
    assert expires - completed == timedelta(hours=24)
    assert abs(completed - datetime.now(UTC)) < timedelta(minutes=5)
    assert kind == ""
    way.execute(
        "INSERT INTO processed_messages (consumer, idempotency_key, message_id, message_type, "
        "status, started_at, completed_at, expires_at) VALUES ('billing', 'old', 'old', "
        "'order.placed', 'completed', NOW(), NOW(), NOW() + INTERVAL '1 hour')"
    )
    assert inbox.is_processed("old")
    way.execute(PURGE)
    assert len(way.marks()) == 2
    way.execute("UPDATE processed_messages SET expires_at = NOW() - INTERVAL '8 days'")
    way.execute(PURGE)
    assert way.marks() == []
    assert inbox.mark_processing("m-1").number == 1


@pytest.mark.row("M5")
def test_a_purge_spares_the_grace_period_and_what_is_locked(way, inbox):
    for number in range(5):
        inbox.mark_completed(inbox.mark_processing(f"m-{number}"))
    seen = []
    assert inbox.purge(grace=0, progress=seen.append) == 0
    days = {0: "2026-01-01", 1: "2026-01-01"}
    for number, day in days.items():
        way.execute(
            f"UPDATE processed_messages SET expires_at = '{day} 00:00:00' "  # noqa: S608 - constants
            f"WHERE idempotency_key = 'm-{number}'"
        )
    soon = (datetime.now(UTC) - timedelta(days=6)).strftime("%Y-%m-%d %H:%M:%S")
    way.execute(
        f"UPDATE processed_messages SET expires_at = '{soon}' "  # noqa: S608 - constants
        "WHERE idempotency_key = 'm-2'"
    )
    assert inbox.purge(progress=seen.append) == 2
    assert inbox.purge(grace="5d") == 1
    assert len(way.marks()) == 2
    assert seen == [0, 2]


@pytest.mark.row("M5")
def test_the_keeper_purges_by_itself_and_keeps_the_grace_period(table):
    way, inbox = table
    for key, days in (("old", 8), ("fresh", 6)):
        inbox.mark_completed(inbox.mark_processing(key))
        way.execute(
            f"UPDATE processed_messages SET expires_at = NOW() - INTERVAL '{days} days' "  # noqa: S608 - constants
            f"WHERE idempotency_key = '{key}'"
        )
    store = inbox.config.once.store
    assert store.purge(0, 500) == 1
    assert [row[1] for row in way.marks()] == ["fresh"]


@pytest.mark.row("M5")
def test_a_purge_passes_over_rows_that_somebody_has_locked(table):
    way, inbox = table
    for key in ("free", "locked"):
        inbox.mark_completed(inbox.mark_processing(key))
    way.execute("UPDATE processed_messages SET expires_at = NOW() - INTERVAL '8 days'")
    with way.transaction() as connection:
        connection.execute(
            "SELECT 1 FROM processed_messages WHERE idempotency_key = 'locked' FOR UPDATE"
        )
        assert inbox.purge() == 1
    assert inbox.purge() == 1


@pytest.mark.parametrize("name", ["psycopg", "sqlite3"])
def test_many_who_meet_an_empty_database_at_once_make_one_table(way_of, name):
    way = way_of(name)
    inboxes = [Inbox(way.url, "billing") for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(Inbox.migrate, inboxes))
    assert way.execute("SELECT count(*) FROM processed_messages_schema") == [(1,)]
    for inbox in inboxes:
        inbox.close()


def test_marks_in_redis(empty_redis, open_inbox):  # noqa: F811 - a fixture
    inbox = open_inbox(empty_redis.url, lease="10s", max_attempts=2)
    with inbox.leased(Message(id="m-1", type="order.placed")) as delivery:
        assert inbox.mark_processing("m-1") is None
        delivery.complete({"order": 7})
    with inbox.leased(Message(id="m-1")) as delivery:
        assert delivery.result == {"order": 7}
    for number in (1, 2):
        assert inbox.mark_processing("m-2").number == number
        inbox.mark_failed("m-2", "no")
    assert inbox.mark_processing("m-2") is None
    with inbox.leased(Message(id="m-2")) as delivery:
        assert delivery.dead
