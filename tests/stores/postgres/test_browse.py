"""Listing PostgreSQL: by its indexes or without them, large tables, and newer releases."""

from itertools import count, islice

import psycopg
import pytest

from oncekey import Once, StoreError, UnreadableError
from oncekey.inspection.listing import count_records, fill_page, find_record, list_records
from oncekey.stores import PostgresStore
from oncekey.stores.browse import RecordQuery
from oncekey.stores.postgres import browse
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres

__all__ = ["_shared_database", "empty_postgres_url", "postgres"]

MANY = 12_000
COPIES = """
    INSERT INTO oncekey_records
    SELECT scope, 'copy-' || n, CASE WHEN n % 100 = 0 THEN 'held' ELSE status END, fingerprint,
        token, nonce, attempt, lease_end, result, error, noted, revision, uncertain, label,
        reference, created - n, started, updated, finished,
        CASE WHEN n % 100 = 0 THEN 0 ELSE expires END, version,
        CASE WHEN n % 100 = 0 THEN 0 ELSE due END, waited
    FROM oncekey_records, generate_series(1, {count}) AS n
"""


@pytest.fixture
def beside(empty_postgres_url):
    with psycopg.connect(empty_postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def store(empty_postgres_url):
    store = PostgresStore(empty_postgres_url)
    Once(store, observers=()).run("key-0", lambda: "done")
    yield store
    store.close()


@pytest.fixture
def many(store, beside):
    beside.execute(COPIES.format(count=MANY))
    beside.execute("VACUUM ANALYZE oncekey_records")
    return store


@pytest.fixture
def without_indexes(store, beside):
    for name in browse.INDEXES:
        beside.execute(f"DROP INDEX {name}")
    yield
    beside.execute("CREATE INDEX oncekey_records_created ON oncekey_records (created)")
    beside.execute("CREATE INDEX oncekey_records_held ON oncekey_records (created) WHERE due = 0")


def keys_of(store, **asked):
    keys, after = [], None
    while True:
        sight = list_records(store, RecordQuery(after=after, **asked))
        keys += [record.key for record in sight.records]
        after = sight.after
        if after is None:
            return keys


def test_many_are_estimated_and_it_is_said(many):
    told = count_records(many)
    assert not told.exact
    assert told.total == pytest.approx(MANY, rel=0.1)
    assert told.by_status["held"] == MANY / 100  # these are counted
    assert told.looked_at < MANY / 2
    assert count_records(many, exact=True).total == MANY + 1


def test_what_has_expired_is_not_counted_and_may_be_purged(store, beside):
    beside.execute(COPIES.format(count=40))
    beside.execute("UPDATE oncekey_records SET expires = 1, due = 1 WHERE key = 'copy-1'")
    assert count_records(store).total == 40
    assert browse.count_due(store, 0) == 1


def test_a_table_that_nobody_has_vacuumed_is_estimated_too(store, beside):
    beside.execute(COPIES.format(count=MANY))
    assert count_records(store).total == pytest.approx(MANY, rel=0.9)


def test_held_ones_are_found_wherever_they_are(many):
    assert len(list_records(many, RecordQuery(status="held", limit=500)).records) == MANY / 100


def test_a_page_looks_at_so_many_and_hands_on(many):
    first = list_records(many, RecordQuery(prefix="copy-12000"))
    assert first.records == []
    assert first.after is not None
    found = fill_page(many, RecordQuery(prefix="copy-12000"))
    assert ([one.key for one in found.records], found.after) == (["copy-12000"], None)


def test_nothing_is_passed_over_while_others_go(many, beside, monkeypatch):
    """Rows above the end of a page are forgotten while it is read."""
    run, gone = browse._run, count(100)

    def forgetting(store, statement, *values):
        rows = run(store, statement, *values)
        names = [f"copy-{number}" for number in islice(gone, 10)]
        beside.execute("DELETE FROM oncekey_records WHERE key = ANY(%s)", [names])
        return rows

    monkeypatch.setattr(browse, "_run", forgetting)
    found = keys_of(many, prefix="copy-50")
    assert next(gone) < 500, "none of those that are looked for"
    stays = [50, *range(500, 510), *range(5000, 5100)]
    assert found == [f"copy-{number}" for number in stays]


@pytest.mark.parametrize(
    ("held", "index"), [(False, "oncekey_records_created"), (True, "oncekey_records_held")]
)
def test_a_page_walks_down_the_index(many, beside, held, index):
    """Also by the plan that a session keeps, which knows none of the values."""
    beside.execute("SET plan_cache_mode = force_generic_plan")
    beside.execute(b"PREPARE page AS " + browse.page_statement(100, held=held).text)
    plan = "\n".join(
        line
        for (line,) in beside.execute(
            "EXPLAIN EXECUTE page(4e18, 0, 0, 0, true, '', NULL, '', '', 101)"
        )
    )
    assert f"Index Scan Backward using {index}" in plan
    assert "Sort" not in plan


def test_what_was_created_at_once_is_told_once(store, beside):
    beside.execute(COPIES.format(count=40).replace("created - n", "created - n / 10"))
    for limit in (1, 3, 10):
        keys = keys_of(store, limit=limit)
        assert (len(keys), len(set(keys))) == (41, 41)


def test_without_the_indexes_records_come_by_scope_and_key(store, beside, without_indexes):
    beside.execute(COPIES.format(count=200))
    sight = list_records(store, RecordQuery(limit=3))
    assert not sight.newest_first
    assert [one.key for one in sight.records] == ["copy-1", "copy-10", "copy-100"]
    assert len(keys_of(store, limit=50)) == 201
    assert len(keys_of(store, status="held")) == 2
    beside.execute(COPIES.format(count=MANY).replace("'copy-'", "'other-'") + "WHERE key = 'key-0'")
    told = count_records(store)
    assert not told.exact
    assert not told.counted("held")


def test_a_record_of_a_newer_release_is_seen_as_far_as_it_is_understood(store, beside):
    beside.execute("UPDATE oncekey_records SET version = 5, status = 'paused'")
    with pytest.raises(UnreadableError):
        store.get(None, "key-0")
    found = find_record(store, None, "key-0")
    assert (found.version, found.status, found.value) == (5, "paused", "done")
    assert [one.status for one in list_records(store, RecordQuery()).records] == ["paused"]
    assert count_records(store).by_status["paused"] == 1


def test_a_server_that_is_gone_is_told_in_a_sentence():
    store = PostgresStore("postgresql://postgres@127.0.0.1:9/none")
    with pytest.raises(StoreError, match="cannot be reached"):
        list_records(store, RecordQuery())
