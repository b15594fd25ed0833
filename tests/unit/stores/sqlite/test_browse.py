"""Listing a SQLite file: its numbers, large files, and records of newer releases."""

import sqlite3
from contextlib import closing

import pytest

from oncekey import UnreadableError
from oncekey.core import machine
from oncekey.core.record import Record
from oncekey.core.requests import Granted
from oncekey.inspection.listing import count_records, fill_page, find_record, list_records
from oncekey.stores import SQLiteStore
from oncekey.stores.browse import RecordQuery
from oncekey.stores.sqlite import browse
from oncekey.stores.sqlite import statements as file
from oncekey.testing.conformance.base import Desk

HOUR = 3_600_000_000
NOW = 1_767_225_600_000_000
MANY = 6000


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock):
    store = SQLiteStore(tmp_path / "records.db", clock=clock)
    yield store
    store.close()


def put(store, records):
    store.get(None, "the file is made")
    with closing(sqlite3.connect(store.path)) as connection, connection:
        rows = [(*file.to_row(record), record.expires) for record in records]
        marks = ", ".join("?" * len(rows[0]))
        made = f"INSERT INTO oncekey_records ({file.COLUMNS}, due) VALUES ({marks})"  # noqa: S608 - only marks
        connection.executemany(made, rows)


def record(number, **fields):
    created = fields.pop("created", NOW - (MANY - number) * 1_000_000)
    facts = {
        "scope": None,
        "key": f"key-{number}",
        "status": "completed",
        "fingerprint": None,
        "token": created,
        "nonce": "n",
        "attempt": 1,
        "lease_end": created,
        "created": created,
        "started": created,
        "updated": created,
        "expires": NOW + HOUR,
    }
    if fields.get("status") == "held":
        facts["expires"] = 0
    return Record(**(facts | fields))


@pytest.fixture
def many(store, monkeypatch):
    """More records than are counted, one for each second; every hundredth is held, nine run."""
    monkeypatch.setattr(browse, "COUNTED", MANY // 3)
    statuses = ["held"] + ["completed"] * 99
    put(
        store,
        (
            record(number, status="running" if number > MANY - 10 else statuses[number % 100])
            for number in range(MANY)
        ),
    )
    return store


def keys_of(sight):
    return [record.key for record in sight.records]


@pytest.mark.parametrize("together", [False, True])
def test_a_record_that_starts_afresh_is_new(store, clock, together):
    desks = [Desk(store, lease=HOUR, ttl=HOUR, key=key) for key in ("first", "second")]
    for desk in desks:
        desk.settle(desk.grant("a"))
        clock.now += 1
    clock.now += 2 * HOUR
    assert keys_of(list_records(store, RecordQuery())) == []
    desks[1].grant("b")
    clock.now += 1
    if together:
        answer = store._commit(store.job(machine.claim, desks[0].ask("b")))
        assert type(answer) is Granted
    else:
        desks[0].grant("b")
    assert keys_of(list_records(store, RecordQuery())) == ["first", "second"]


def test_many_are_estimated_and_it_is_said(many, monkeypatch):
    # Probes spread evenly over the older ones: by chance one might meet what runs, and multiply it.
    monkeypatch.setattr(browse, "choices", lambda numbers, k: numbers[: MANY // 2 : MANY // 2 // k])
    told = count_records(many)
    assert not told.exact
    assert 0 < told.looked_at < MANY / 10
    assert told.total == pytest.approx(MANY, rel=0.02)  # no number is missing
    assert told.by_status["running"] == 9  # they are the newest
    assert (told.counted("running"), told.counted("held")) == (False, True)
    exactly = count_records(many, exact=True)
    assert (exactly.total, exactly.by_status["held"], exactly.exact) == (MANY, 60, True)


def test_numbers_that_are_missing_are_allowed_for(many):
    with closing(sqlite3.connect(many.path)) as connection, connection:
        connection.execute("DELETE FROM oncekey_records WHERE rowid % 2")
    totals = [count_records(many).total for _ in range(20)]
    assert sum(totals) / 20 == pytest.approx(MANY / 2, rel=0.2)


def test_a_page_looks_at_so_many_and_hands_on(many):
    ask = RecordQuery(prefix="key-1", limit=2000)
    page = list_records(many, ask)
    assert page.records == []
    assert page.after is not None
    whole = fill_page(many, ask)
    assert (len(whole.records), whole.after) == (1111, None)
    assert fill_page(many, ask, seconds=0).after == page.after


def test_a_gap_is_jumped_over(many):
    with closing(sqlite3.connect(many.path)) as connection, connection:
        connection.execute("DELETE FROM oncekey_records WHERE rowid > 10 AND rowid < 5990")
    first = list_records(many, RecordQuery())
    assert len(first.records) == 11
    rest = list_records(many, RecordQuery(after=first.after))
    assert (len(rest.records), rest.after) == (10, None)


def test_ages_are_found_without_looking_at_what_lies_between(many):
    seconds = 1_000_000
    older = list_records(many, RecordQuery(older=5000 * seconds, limit=3))
    assert keys_of(older) == ["key-1000", "key-999", "key-998"]
    assert keys_of(
        list_records(many, RecordQuery(older=5000 * seconds, limit=2, after=older.after))
    )[0] == ("key-997")
    assert list_records(many, RecordQuery(older=7000 * seconds)).records == []
    newer = list_records(many, RecordQuery(newer=20 * seconds, status="held"))
    assert (newer.records, newer.after) == ([], None)
    between = list_records(many, RecordQuery(older=100 * seconds, newer=102 * seconds))
    assert keys_of(between) == ["key-5900", "key-5899", "key-5898"]


def test_what_expired_is_neither_seen_nor_counted(store):
    put(store, [record(1), record(2, expires=NOW), record(3, expires=0, status="held")])
    assert keys_of(list_records(store, RecordQuery())) == ["key-3", "key-1"]
    assert count_records(store).total == 2


def test_a_record_of_a_newer_release_is_seen_as_far_as_it_is_understood(store):
    put(store, [record(1, version=9, label="new", result=b"\x01"), record(2, status="held")])
    with pytest.raises(UnreadableError):
        store.get(None, "key-1")
    seen = list_records(store, RecordQuery())
    assert [(one.key, one.version, one.label) for one in seen.records] == [
        ("key-2", 1, ""),
        ("key-1", 9, "new"),
    ]
    found = find_record(store, None, "key-1")
    assert (found.version, found.value) == (9, 1)
    put(store, [record(4, version=9, expires=NOW)])
    with pytest.raises(UnreadableError):
        store.get(None, "key-4")
    assert find_record(store, None, "key-4") is None


def test_the_index_finds_and_counts_what_is_held(many):
    with closing(sqlite3.connect(many.path)) as connection, connection:
        connection.execute(f"DROP INDEX {browse.HELD_INDEX}")
    assert not count_records(many).counted("held")
    windows = fill_page(many, RecordQuery(status="held", limit=100))
    with closing(sqlite3.connect(many.path)) as connection, connection:
        connection.execute(browse.MAKE_HELD_INDEX)
    assert count_records(many).by_status["held"] == 60
    indexed = list_records(many, RecordQuery(status="held", limit=100))
    assert (keys_of(indexed), indexed.after) == (keys_of(windows), None)
    first = list_records(many, RecordQuery(status="held", limit=40, prefix="key-"))
    rest = list_records(
        many, RecordQuery(status="held", limit=40, prefix="key-", after=first.after)
    )
    assert keys_of(first) + keys_of(rest) == keys_of(windows)


def test_counting_what_is_held_reads_nothing_but_the_index(many):
    [(*_, plan)] = many.rows(f"EXPLAIN QUERY PLAN {browse.HELD_COUNT}")
    assert f"USING COVERING INDEX {browse.HELD_INDEX}" in plan
    plans = many.rows(
        f"EXPLAIN QUERY PLAN {browse.HELD_PAGE}ORDER BY updated DESC, rowid DESC", 0, 0
    )
    assert len(plans) == 1, "the index has the order of the page"


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_those_that_were_held_last_come_first(store, limit):
    moments = [NOW - 3, NOW - 1, NOW - 2, NOW - 1]
    put(store, (record(n, status="held", updated=at) for n, at in enumerate(moments)))
    listed, after = [], None
    while True:
        page = list_records(store, RecordQuery(status="held", limit=limit, after=after))
        listed += keys_of(page)
        after = page.after
        if after is None:
            break
    assert listed == ["key-3", "key-1", "key-2", "key-0"]
