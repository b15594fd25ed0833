"""The tables of a SQLite file: what an older release left is brought up to date, and kept."""

import sqlite3
from contextlib import closing
from importlib import resources

import pytest

from oncekey.core import machine
from oncekey.core.requests import (
    Busy,
    Claim,
    Granted,
    Release,
    Renew,
    Replay,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite import browse, statements
from oncekey.testing import FakeClock

HOUR = 3_600_000_000
DAY = 24 * HOUR
FIRST = (resources.files("oncekey.stores.sqlite") / "sql" / "0001_records.sql").read_text()


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


# A file of an older release


@pytest.fixture
def old(tmp_path, store, clock):
    """A file as the first schema had it: a settled record, one that runs, and a held one."""
    records = {}
    for key in ("settled", "running", "held"):
        records[key] = store.claim(a_claim(key)).record
    store.settle(an_end(records["settled"]))
    leaving = {"error": None, "uncertain": True, "hold": True, "unused": False}
    owner = {"token": records["held"].token, "nonce": "n"}
    store.release(Release(None, "held", **owner, **leaving, counted=False, bare_ttl=HOUR, ttl=DAY))
    kept = store.scan(Scan()).records
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(FIRST)
        marks = ", ".join("?" * 21)
        made = f"INSERT INTO oncekey_records ({statements.COLUMNS}) VALUES ({marks})"  # noqa: S608 - only marks
        connection.executemany(made, [statements.to_row(record) for record in kept])
        connection.execute("UPDATE oncekey_schema SET version = 1")
    upgraded = SQLiteStore(path, clock=clock)
    yield upgraded, kept
    upgraded.close()


def test_an_old_file_is_upgraded_with_its_records(old):
    store, kept = old
    assert store.scan(Scan()).records == kept
    assert dues(store) == {record.key: record.expires for record in kept}
    assert store.rows("SELECT version FROM oncekey_schema") == [(2,)]
    names = {name for (name,) in store.rows("SELECT name FROM sqlite_master")}
    assert "oncekey_records_due" in names
    assert "oncekey_records_expires" not in names


def test_the_records_of_an_old_file_go_on(old, clock):
    store, kept = old
    running = next(record for record in kept if record.status == "running")
    assert type(store.claim(a_claim("settled", "later"))) is Replay
    assert type(store.claim(a_claim("running", "later"))) is Busy
    assert store.settle(an_end(running)) is Verdict.DONE
    held = store.get(None, "held")
    said = {"status": "completed", "result": b"", "error": None, "ttl": DAY}
    assert store.resolve(Resolve(None, "held", token=held.token, **said)) is Verdict.DONE
    clock.advance("30d")
    assert store.purge(0, 10) == 3


def test_what_an_old_release_goes_on_writing_is_purged(store, clock):
    """It opened the file before it was upgraded, and does not know when a record is due."""
    store.claim(a_claim("first"))
    with closing(sqlite3.connect(store.path)) as connection, connection:
        columns = statements.COLUMNS
        copied = columns.replace("key", "'copy'", 1)
        connection.execute(
            f"INSERT INTO oncekey_records ({columns}) SELECT {copied} FROM oncekey_records"  # noqa: S608 - only constants
        )
    copy = store.get(None, "copy")
    assert store.settle(an_end(copy)) is Verdict.DONE
    assert store.purge(0, 10) == 0
    clock.advance("2d")
    assert store.purge(0, 10) == 1
    assert store.get(None, "first") is not None


# When a record is due


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
