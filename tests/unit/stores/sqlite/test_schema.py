"""The tables of a SQLite file: how they are made, and when a record is due."""

import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from oncekey.core import machine
from oncekey.core.requests import Claim, Granted, Release, Renew, Scan, Settle, Verdict
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite import browse, schema, statements
from oncekey.testing import FakeClock

HOUR = 3_600_000_000
DAY = 24 * HOUR


def a_claim(key="k", nonce="n", ttl=2 * DAY):
    return Claim(None, key, nonce=nonce, fingerprint=None, lease=30_000_000, ttl=ttl)


def an_end(record, ttl=2 * DAY):
    owner = {"token": record.token, "nonce": record.nonce}
    end = {"status": "completed", "result": b"paid", "error": None, "ttl": ttl}
    return Settle(record.scope, record.key, **owner, **end)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(tmp_path, clock):
    made = SQLiteStore(tmp_path / "records.db", clock=clock)
    yield made
    made.close()


def dues(store):
    return dict(store.rows("SELECT key, due FROM oncekey_records"))


# Migrations


def test_the_tables_are_made_at_first_use(store):
    store.claim(a_claim())
    assert store.rows("SELECT version FROM oncekey_schema") == [(1,)]
    names = {name for (name,) in store.rows("SELECT name FROM sqlite_master")}
    assert {"oncekey_records", "oncekey_records_due", "oncekey_schema"} <= names


def test_a_file_of_an_older_release_is_brought_up_to_date(store, clock, monkeypatch):
    record = store.claim(a_claim()).record
    known = [*schema._migrations(), "CREATE TABLE oncekey_more (x);\n"]
    monkeypatch.setattr(schema, "_migrations", lambda: known)
    newer = SQLiteStore(store.path, clock=clock)
    assert newer.get(None, "k") == record
    assert newer.rows("SELECT version FROM oncekey_schema") == [(2,)]
    assert newer.rows("SELECT count(*) FROM oncekey_more") == [(0,)]
    newer.close()


# When a record is due


def test_a_file_that_is_ready_opens_though_somebody_writes_all_the_time(tmp_path, monkeypatch):
    path = tmp_path / "records.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as busy:
        busy.execute("PRAGMA journal_mode = WAL")
        busy.execute("BEGIN IMMEDIATE")

        def make_ready_and_go_on(_):
            for script in schema._migrations():
                for statement in schema.statements_of(script):
                    busy.execute(statement)
            busy.execute("UPDATE oncekey_schema SET version = 1")
            busy.execute("COMMIT")
            busy.execute("BEGIN IMMEDIATE")

        clock = SimpleNamespace(sleep=make_ready_and_go_on, monotonic=time.monotonic)
        monkeypatch.setattr(schema, "time", clock)
        store = SQLiteStore(path)
        assert store.get("shop", "k") is None
        store.close()


@pytest.mark.fast_path("what a writer does while nobody else writes")
def test_a_settle_writes_one_page(store):
    """Neither the primary key nor the index of what is due is touched."""
    log = store.path.with_name(f"{store.path.name}-wal")
    store.claim(a_claim("first"))
    record = store.claim(a_claim()).record
    before = log.stat().st_size
    store.settle(an_end(record))
    page = store.rows("PRAGMA page_size")[0][0]
    assert log.stat().st_size - before == 24 + page


def test_a_settle_that_shortens_the_life_is_purged_in_time(store, clock):
    for key in ("alone", "a", "b"):
        store.claim(a_claim(key))
    records = {record.key: record for record in store.scan(Scan()).records}
    assert store.settle(an_end(records["alone"], ttl=HOUR)) is Verdict.DONE
    jobs = [
        store.job(machine.settle, an_end(records[key], ttl=HOUR), plain=True) for key in ("a", "b")
    ]
    store.writer.commit(jobs)
    assert {job.value for job in jobs} == {Verdict.DONE}
    clock.advance("1h")
    assert browse.count_due(store, 0) == 3
    assert store.purge(0, 10) == 3


def test_a_renewal_and_a_settle_after_it_leave_the_index_alone(store, clock):
    record = store.claim(a_claim()).record
    due = dues(store)["k"]
    clock.advance("10s")
    owner = {"token": record.token, "nonce": "n"}
    assert store.renew(Renew(None, "k", **owner, lease=30_000_000, ttl=2 * DAY)) is Verdict.DONE
    assert store.settle(an_end(record)) is Verdict.DONE
    assert dues(store) == {"k": due}
    assert due < store.get(None, "k").expires


def test_what_is_due_but_lives_on_is_not_purged(store, clock):
    store.claim(a_claim(ttl=HOUR))
    clock.advance("2h")  # a record that runs lives a day longer than its lease
    assert browse.count_due(store, 0) == 0
    assert store.purge(0, 10) == 0
    assert store.get(None, "k") is not None


def test_the_next_attempt_is_due_later(store, clock):
    record = store.claim(a_claim()).record
    leaving = {"error": None, "uncertain": False, "hold": False, "unused": False}
    owner = {"token": record.token, "nonce": "n"}
    store.release(Release(None, "k", **owner, **leaving, counted=False, bare_ttl=HOUR, ttl=DAY))
    assert dues(store)["k"] == store.get(None, "k").expires
    clock.advance("1m")
    assert type(store.claim(a_claim(nonce="next"))) is Granted
    assert dues(store)["k"] == clock() + 2 * DAY


def test_what_is_held_is_never_due(store, clock):
    record = store.claim(a_claim()).record
    leaving = {"error": None, "uncertain": True, "hold": True, "unused": False}
    owner = {"token": record.token, "nonce": "n"}
    store.release(Release(None, "k", **owner, **leaving, counted=False, bare_ttl=HOUR, ttl=DAY))
    assert dues(store) == {"k": 0}
    clock.advance("30d")
    assert store.purge(0, 10) == 0
    assert store.settle(an_end(record)) is Verdict.DONE
    assert dues(store)["k"] == clock() + 2 * DAY


def test_expired_records_are_found_by_the_index(store):
    store.get(None, "k")
    plan = store.rows(f"EXPLAIN QUERY PLAN {statements.ANY_EXPIRED}", 1, 1)
    assert "USING INDEX oncekey_records_due" in str(plan)
