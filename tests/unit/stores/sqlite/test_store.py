"""The SQLite store beyond what every store must do: its file, its writer, its troubles."""

import asyncio
import gc
import math
import re
import sqlite3
import subprocess
import sys
import threading
from collections import deque
from contextlib import closing
from functools import partial

import pytest

from oncekey import ConfigurationError, StoreError, UnreadableError, compat
from oncekey.core import machine
from oncekey.core.requests import (
    Busy,
    Claim,
    Forget,
    Granted,
    Note,
    Release,
    Renew,
    Resolve,
    Scan,
    Settle,
    Verdict,
)
from oncekey.doctor import examine
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite import schema, writer
from oncekey.stores.sqlite import statements as sqlite_file
from oncekey.stores.sqlite.writer import Job
from oncekey.testing import FakeClock
from tests.patience import PATIENCE, until
from tests.servers import redis_asks as asks


def a_claim(key="k", nonce="n"):
    return Claim(None, key, nonce=nonce, fingerprint=None, lease=10**8, ttl=10**8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.db"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(path, clock):
    made = SQLiteStore(path, busy_timeout="50ms", clock=clock)
    yield made
    made.close()


# The file


def test_a_relative_path_is_of_the_folder_in_which_the_store_was_made(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    monkeypatch.chdir(first)
    store = SQLiteStore("records.db")
    store.claim(a_claim())
    monkeypatch.chdir(second)  # as a daemon does; what reads has a connection of its own
    assert store.get(None, "k") is not None
    assert str(first / "records.db") in str(examine(store))
    store.close()
    assert list(second.iterdir()) == []


def test_the_file_is_durable_and_in_wal_mode(store, path):
    store.claim(a_claim())
    store.get(None, "k")
    for connection in (store._reader, store.writer.connection):
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    loose = SQLiteStore(path, synchronous="NORMAL")
    loose.get(None, "k")
    assert loose._reader.execute("PRAGMA synchronous").fetchone() == (1,)
    assert loose._reader.execute("PRAGMA wal_autocheckpoint").fetchone() == (4000,)
    loose.close()


@pytest.mark.parametrize("way", ["claim", "get"])
@pytest.mark.parametrize("happens", ["moved", "removed", "replaced"])
def test_a_file_that_is_not_at_its_path_any_more_is_given_up(
    path, monkeypatch, caplog, happens, way
):
    monkeypatch.setattr(schema, "_LOOK_EVERY", 0.0)
    with closing(SQLiteStore(path)) as store, closing(SQLiteStore(path)) as other:
        store.claim(a_claim("old"))
        store.get(None, "old")
        if happens == "removed":
            path.unlink()
        else:
            path.rename(path.with_suffix(".old"))
        if happens == "replaced":
            SQLiteStore(path).claim(a_claim("of the new file"))
        other.claim(a_claim("k", "theirs"))
        if way == "claim":
            assert isinstance(store.claim(a_claim("k", "mine")), Busy)
        else:
            assert store.get(None, "k") is not None
    assert str(path) in caplog.text
    # Closing the old file must not take away the log of the new one.
    with closing(SQLiteStore(path)) as later:
        assert later.get(None, "k") is not None
        assert later.get(None, "old") is None


def test_a_file_that_is_gone_is_made_again(path, monkeypatch):
    monkeypatch.setattr(schema, "_LOOK_EVERY", 0.0)
    with closing(SQLiteStore(path)) as store:
        store.claim(a_claim("old"))
        path.unlink()
        store.claim(a_claim("new"))
        assert path.exists()
        assert store.get(None, "old") is None
        assert store.get(None, "new") is not None


def test_a_file_that_stays_is_not_opened_again(store, monkeypatch):
    monkeypatch.setattr(schema, "_LOOK_EVERY", 0.0)
    store.claim(a_claim("k"))
    before = store.writer.connection
    store.claim(a_claim("another"))
    assert store.writer.connection is before


def test_a_folder_that_is_not_there_is_named(tmp_path):
    store = SQLiteStore(tmp_path / "no" / "records.db")
    for use in (lambda: store.get(None, "k"), lambda: store.purge(0, 1)):
        with pytest.raises(ConfigurationError, match=r"folder .*no to exist"):
            use()


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        SQLiteStore(tmp_path).claim(a_claim())


def test_a_file_that_is_no_database_is_named(path):
    path.write_bytes(b"not a database " * 1000)
    with pytest.raises(ConfigurationError, match="damaged or not a database"):
        SQLiteStore(path).claim(a_claim())
    assert path.read_bytes() == b"not a database " * 1000


def test_a_file_of_a_newer_release_is_refused(store, path):
    store.claim(a_claim())
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE oncekey_schema SET version = 99")
    connection.close()
    with pytest.raises(ConfigurationError, match="newer release"):
        store.claim(a_claim())


def test_a_record_of_a_newer_release_is_refused_and_the_others_are_not(store, path):
    store.claim(a_claim("new"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE oncekey_records SET version = 99")
    connection.close()
    for use in (lambda: store.get(None, "new"), lambda: store.claim(a_claim("new", "other"))):
        with pytest.raises(UnreadableError, match="newer release") as caught:
            use()
        assert caught.value.key == "new"
    with pytest.raises(UnreadableError):
        store.scan(Scan())
    together = [Job(store.transition(machine.claim, a_claim(key))) for key in ("new", "old")]
    store.writer.commit(together)  # found out inside a transaction, it fails alone
    assert type(together[0].error) is UnreadableError
    assert type(together[1].value) is Granted


WAYS_TO_SETTLE = {
    "alone": lambda store, ends: [store.settle(ends[0])],
    "in a transaction": lambda store, ends: settled(store, ends[:1]),
    "together": lambda store, ends: settled(store, [*ends]),
}


def settled(store, ends):
    """What these settles answer, asked for in one batch."""
    jobs = [store.job(machine.settle, end, plain=True) for end in ends]
    store.writer.commit(jobs)
    for job in jobs:
        if job.error is not None:
            raise job.error
    return [job.value for job in jobs]


@pytest.mark.parametrize("way", WAYS_TO_SETTLE)
def test_a_record_of_a_newer_release_is_not_settled(store, path, way):
    """Its owner runs beside a newer release that has written to the record."""
    ends = [asks.settle(store.claim(a_claim(key)).record) for key in ("new", "old")]
    everything = "SELECT * FROM oncekey_records WHERE key = 'new'"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE oncekey_records SET version = 99 WHERE key = 'new'")
        before = connection.execute(everything).fetchone()
        with pytest.raises(UnreadableError, match="newer release"):
            WAYS_TO_SETTLE[way](store, ends)
        assert connection.execute(everything).fetchone() == before
    if way == "together":
        assert store.get(None, "old").status == "completed"


@pytest.mark.parametrize("version", [1, 5])
def test_a_file_of_the_users_own_keeps_its_version(store, path, version):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("CREATE TABLE theirs (x)")
    assert type(store.claim(a_claim())) is Granted
    assert connection.execute("PRAGMA user_version").fetchone() == (version,)
    connection.close()


def test_an_old_sqlite_is_refused(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(ConfigurationError, match=r"3\.35"):
        SQLiteStore(path).claim(a_claim())


def test_several_processes_may_make_the_tables_at_once(path):
    code = (
        "import sys; from oncekey import Once; sys.stdin.readline();"
        f"print(Once('sqlite:///{path}', observers=()).check('k'))"
    )
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    printed = [one.communicate("go\n", timeout=PATIENCE)[0].strip() for one in crowd]
    assert sorted(printed) == ["False"] * 5 + ["True"]


def test_a_migration_that_fails_leaves_nothing(path, monkeypatch):
    monkeypatch.setattr(schema, "_migrations", lambda: ["CREATE TABLE a (x);\nnonsense;\n"])
    with pytest.raises(StoreError, match="nonsense"):
        SQLiteStore(path).claim(a_claim())
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
    connection.close()


class Locked:
    """A connection whose first statements find the file locked, without having waited for it."""

    def __init__(self, times):
        self.times = times

    def execute(self, statement):
        self.times -= 1
        if self.times >= 0:
            msg = "database is locked"
            raise sqlite3.OperationalError(msg)


def test_changing_the_mode_is_tried_again_while_others_change_it(monkeypatch):
    """Seen with six processes that open a new file at once: no busy handler is asked there."""
    paused = []
    monkeypatch.setattr(schema.time, "sleep", paused.append)
    schema.when_unlocked(partial(Locked(3).execute, "PRAGMA journal_mode = WAL"), 10.0)
    assert len(paused) == 3
    with pytest.raises(sqlite3.OperationalError):
        schema.when_unlocked(partial(Locked(3).execute, "PRAGMA journal_mode = WAL"), -1.0)


def test_opening_does_not_wait_for_ever(store, path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE theirs (x)")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked") as caught:
        store.claim(a_claim())
    assert caught.value.happened is False
    other.close()


# Trouble


def test_a_read_that_fails_is_told(store):
    store.get(None, "k")
    store._reader.close()
    with pytest.raises(StoreError, match="closed"):
        store.get(None, "k")
    store._reader = None


def test_a_purge_that_fails_is_told(store, clock):
    store.claim(a_claim())
    clock.advance("30d")
    store.writer.connection = Broken(store.writer.connection, sqlite_file.PURGE)
    with pytest.raises(StoreError, match="disk I/O"):
        store.purge(0, 10)


def test_a_locked_file_changes_nothing_and_reads_go_on(store, path):
    store.claim(a_claim())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked") as caught:
        store.claim(a_claim("other"))
    assert caught.value.happened is False
    assert type(store.claim(a_claim(nonce="later"))) is Busy
    other.execute("COMMIT")
    other.close()
    assert type(store.claim(a_claim("other"))) is Granted


class Broken:
    """A connection on which one statement fails."""

    def __init__(self, real, statement, error=None):
        self.real, self.statement = real, statement
        self.error = error or sqlite3.OperationalError("disk I/O error")
        self.after = False

    looks_at = math.inf

    def has_moved(self):
        return False

    @property
    def in_transaction(self):
        return self.real.in_transaction

    def execute(self, statement, values=()):
        if statement == self.statement:
            if self.after:
                self.real.execute(statement, values)
            raise self.error
        return self.real.execute(statement, values)

    def close(self):
        self.real.close()


def in_a_transaction(store, key="other"):
    """A claim that finds somebody leading, and so waits for a transaction."""
    job = Job(store.transition(machine.claim, a_claim(key)))
    store.writer.commit([job])
    if job.error is not None:
        raise job.error
    return job.value


def alone(store, key="other"):
    """A claim that finds nobody leading."""
    return store.claim(a_claim(key))


@pytest.mark.fast_path("what a group commit does")
def test_a_statement_for_many_that_fails_is_told_to_all(store):
    store.claim(a_claim())
    real = store.writer.connection
    store.writer.connection = Broken(real, sqlite_file.insert_many(2))
    jobs = [store.job(machine.claim, a_claim(key), plain=True) for key in ("a", "b")]
    store.writer.commit(jobs)
    store.writer.connection = real
    assert [type(job.error) for job in jobs] == [StoreError, StoreError]
    assert [job.error.happened for job in jobs] == [None, None]
    assert store.get(None, "a") is None


@pytest.mark.fast_path("what a writer does while nobody else writes")
@pytest.mark.parametrize(("way", "happened"), [(in_a_transaction, False), (alone, None)])
def test_a_statement_that_fails_is_told(store, way, happened):
    store.claim(a_claim())
    real = store.writer.connection
    store.writer.connection = Broken(real, sqlite_file.INSERT)
    with pytest.raises(StoreError, match="disk I/O") as caught:
        way(store)
    assert caught.value.happened is happened
    store.writer.connection = real
    assert store.get(None, "other") is None
    assert type(way(store)) is Granted


def test_a_commit_that_fails_without_a_word_is_unknown(store):
    store.claim(a_claim())
    broken = store.writer.connection = Broken(store.writer.connection, "COMMIT")
    broken.after = True
    with pytest.raises(StoreError) as caught:
        in_a_transaction(store)
    assert caught.value.happened is None
    assert store.get(None, "other") is not None


def test_a_rollback_that_fails_is_unknown_and_the_connection_is_given_up(store):
    store.claim(a_claim())
    inner = Broken(store.writer.connection, "ROLLBACK")
    store.writer.connection = Broken(inner, sqlite_file.INSERT)
    with pytest.raises(StoreError) as caught:
        in_a_transaction(store)
    assert caught.value.happened is None
    inner.close()
    assert store.writer.connection is None
    assert type(alone(store)) is Granted


def test_a_damaged_page_is_no_reason_to_run_unprotected(store):
    store.claim(a_claim())
    damage = sqlite3.DatabaseError("database disk image is malformed")
    store.writer.connection = Broken(store.writer.connection, sqlite_file.INSERT, damage)
    for way in (alone, in_a_transaction):
        with pytest.raises(ConfigurationError, match="damaged"):
            way(store)


# Another process that comes between reading and writing


@pytest.mark.fast_path("what a writer does while nobody else writes")
@pytest.mark.parametrize("verb", ["claim", "renew", "settle", "forget"])
def test_who_comes_in_between_is_seen(path, verb):
    """The swap finds the row changed, and the transaction decides."""
    other = SQLiteStore(path)
    meddling = []

    class Meddler:
        """A connection on which somebody else is quicker, once."""

        def __init__(self, real):
            self.real = real

        looks_at = math.inf

        def has_moved(self):
            return False

        def execute(self, statement, values=()):
            if meddling and not statement.startswith(("SELECT", "BEGIN")):
                meddling.pop()()
            return self.real.execute(statement, values)

        in_transaction = property(lambda self: self.real.in_transaction)

        def close(self):
            self.real.close()

    store = SQLiteStore(path)
    if verb == "claim":
        store.claim(a_claim("first"))
        store.writer.connection = Meddler(store.writer.connection)
        meddling.append(lambda: other.claim(a_claim(nonce="quick")))
        assert type(store.claim(a_claim(nonce="slow"))) is Busy
    else:
        mine = store.claim(a_claim()).record
        store.writer.connection = Meddler(store.writer.connection)
        forced = Forget(None, "k", token=mine.token, force=True)
        meddling.append(lambda: (other.forget(forced), other.claim(a_claim(nonce="quick"))))
        if verb == "settle":
            ask = Settle(
                None,
                "k",
                token=mine.token,
                nonce="n",
                status="completed",
                result=b"r",
                error=None,
                ttl=10**8,
            )
            assert store.settle(ask) is Verdict.LOST
        elif verb == "renew":
            ask = Renew(None, "k", token=mine.token, nonce="n", lease=10**8, ttl=10**8)
            assert store.renew(ask) is Verdict.LOST
        else:
            assert store.forget(forced) is Verdict.LOST
        assert store.get(None, "k").nonce == "quick"
    assert not meddling
    store.close()
    other.close()


# Another process that has the file locked for as long as a lease


def claims(store, *keys):
    """What claims of these keys become in one batch."""
    store.writer.commit([store.job(machine.claim, a_claim(key), plain=True) for key in keys])


async def claims_of_coroutines(store, *keys):
    other = store.as_async()
    await asyncio.gather(*(other.claim(a_claim(key)) for key in keys))
    await other.aclose()


def an_owner(record):
    return {"token": record.token, "nonce": record.nonce}


WRITES = {
    "claim": lambda store, _: store.claim(a_claim("a")),
    "claims": lambda store, _: claims(store, "a", "b"),
    "claim and settle": lambda store, mine: store.writer.commit(
        [
            store.job(machine.claim, a_claim("a"), plain=True),
            store.job(machine.settle, asks.settle(mine), plain=True),
        ]
    ),
    "coroutine": lambda store, _: asyncio.run(claims_of_coroutines(store, "a")),
    "coroutines": lambda store, _: asyncio.run(claims_of_coroutines(store, "a", "b")),
    "renew": lambda store, mine: store.renew(
        Renew(None, mine.key, **an_owner(mine), lease=10**8, ttl=10**8)
    ),
    "settle": lambda store, mine: store.settle(asks.settle(mine)),
    "release": lambda store, mine: store.release(asks.release(mine)),
}


BOTH_WAYS = [
    pytest.param(
        True, marks=pytest.mark.fast_path("what a writer does with fast paths"), id="True"
    ),
    False,
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("fast", BOTH_WAYS)
def test_time_is_read_when_the_lock_is_had(path, clock, write, fast):
    """A lease that is counted from before the wait may be over when it is granted."""
    store = SQLiteStore(path, busy_timeout="1h", clock=clock, fast=fast)
    mine = store.claim(a_claim("mine")).record
    begun = []
    store.writer.connection.set_trace_callback(begun.append)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = threading.Thread(target=WRITES[write], args=(store, mine), daemon=True)
    writing.start()
    tries = lambda: sum(not text.startswith("SELECT") for text in begun)  # noqa: E731 - counted twice
    until(tries)
    clock.advance("150s")  # longer than the leases
    before = tries()
    until(lambda: tries() > before + 1)  # one of them may have had the time from before
    other.execute("COMMIT")
    other.close()
    writing.join(PATIENCE)
    written = [record for record in store.scan(Scan()).records if record.updated > mine.updated]
    assert written
    assert {record.updated for record in written} == {clock()}
    assert all(record.lease_end > clock() for record in written if record.status == "running")
    store.close()


def test_a_writer_waits_as_long_as_it_was_told(path, monkeypatch):
    """By itself: a statement that waits inside of SQLite would be given the time from before."""
    store = SQLiteStore(path, busy_timeout="1h")
    store.claim(a_claim())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    paused = []

    def pause(seconds):
        paused.append(seconds)
        if len(paused) == 10:
            other.execute("COMMIT")

    monkeypatch.setattr(schema.time, "sleep", pause)
    assert type(store.claim(a_claim("other"))) is Granted
    assert len(paused) == 10
    assert (min(paused), max(paused)) == (0.001, 0.05)
    other.close()
    store.close()


# The writer


class Leader:
    """A thread that leads until it is told to go on."""

    def __init__(self, store, error=None):
        self.inside, self.go_on, self.caught = threading.Event(), threading.Event(), None

        def work(connection, now):
            self.inside.set()
            assert self.go_on.wait(2 * PATIENCE)  # longer than its test waits
            if error is not None:
                raise error

        def lead():
            try:
                store.writer.commit([Job(work)])
            except BaseException as caught:  # noqa: BLE001 - looked at by the test
                self.caught = caught

        self.thread = threading.Thread(target=lead, daemon=True)
        self.thread.start()
        assert self.inside.wait(PATIENCE)

    def finish(self):
        self.go_on.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


class Asking:
    """A thread that claims, which a test does not have to wait for."""

    def __init__(self, store, claim):
        self.heard = []
        ask = lambda: self.heard.append(store.claim(claim))  # noqa: E731 - the thread's only line
        threading.Thread(target=ask, daemon=True).start()


def queued(store, number):
    until(lambda: len(store.writer._queue) >= number)


@pytest.mark.fast_path("what a group commit does")
def test_what_is_queued_is_committed_together(store):
    store.claim(a_claim())
    statements = []
    store.writer.connection.set_trace_callback(statements.append)
    leader = Leader(store)
    crowd = [threading.Thread(target=store.claim, args=(a_claim(f"k{n}"),)) for n in range(10)]
    for one in crowd:
        one.start()
    queued(store, 10)
    leader.finish()
    for one in crowd:
        one.join(PATIENCE)
    assert statements.count("COMMIT") == 1  # the leader's; one statement is one by itself
    assert sum(text.startswith("INSERT") for text in statements) == 1
    assert store.get(None, "k9") is not None
    assert type(store.claim(a_claim("after"))) is Granted  # nobody leads any more


def test_a_batch_has_a_limit(store, monkeypatch):
    monkeypatch.setattr(writer, "_LARGEST_BATCH", 3)
    leader = Leader(store)
    crowd = [threading.Thread(target=store.claim, args=(a_claim(f"k{n}"),)) for n in range(7)]
    for one in crowd:
        one.start()
    queued(store, 7)
    leader.finish()
    for one in crowd:
        one.join(PATIENCE)
    assert all(store.get(None, f"k{n}") for n in range(7))


@pytest.mark.fast_path("what a writer does while nobody else writes")
def test_a_new_key_takes_two_commits_and_a_duplicate_one_read(path):
    from oncekey import Once

    store = SQLiteStore(path)
    once = Once(store, observers=())
    once.run("open", lambda: 1)
    written, read = [], []
    store.writer.connection.set_trace_callback(written.append)
    store.get(None, "open")
    store._reader.set_trace_callback(read.append)
    once.run("new", lambda: 1)
    assert [text.split()[0] for text in written] == ["SELECT", "INSERT", "UPDATE"]
    written.clear()
    read.clear()
    once.run("new", lambda: 1)
    assert [text.split()[0] for text in written + read] == ["SELECT"]
    store.close()


def test_a_leader_that_is_cut_off_leaves_nobody_waiting(path, monkeypatch):
    """Its own batch is unknown, whoever waits behind it leads next, and the file is not locked."""
    monkeypatch.setattr(writer, "LOOK_EVERY", 3600.0)  # it is not found out, but hands over
    store = SQLiteStore(path)
    leader = Leader(store, KeyboardInterrupt())
    heard = []
    follower = threading.Thread(target=lambda: heard.append(store.claim(a_claim())), daemon=True)
    follower.start()
    queued(store, 1)
    leader.finish()
    assert isinstance(leader.caught, KeyboardInterrupt)
    follower.join(PATIENCE)
    assert [type(one) for one in heard] == [Granted]
    store.close()


def test_the_jobs_of_a_leader_that_is_cut_off_are_unknown(store):
    def cut_off(connection, now):
        raise KeyboardInterrupt

    jobs = [Job(store.transition(machine.claim, a_claim())), Job(cut_off)]
    with pytest.raises(KeyboardInterrupt):
        store.writer.commit(jobs)
    assert jobs[0].error.happened is None
    assert store.get(None, "k") is None


class CutOff:
    """A lock on which its owner is cut off while it waits."""

    def __init__(self, before):
        self.before = before

    def acquire(self, *, timeout):
        self.before()
        raise KeyboardInterrupt

    def release(self):
        """Nobody waits on it any more."""


@pytest.mark.fast_path("what a group commit does")
def test_who_is_cut_off_after_it_was_served_leaves_no_trace(store, monkeypatch):
    """A third thread took its jobs along: they are done, and it is not in the queue any more."""
    leader = Leader(store)
    real = writer._Turn
    third = threading.Thread(target=store.claim, args=(a_claim("third"),), daemon=True)

    def serve():
        third.start()
        queued(store, 2)
        store.writer._queue.reverse()  # the third is handed over to, and takes us along
        leader.finish()
        third.join(PATIENCE)

    def turn(jobs, runner):
        made = real(jobs, runner)
        if not third.ident:
            made.wake = CutOff(serve)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(writer, "_Turn", turn)
        with pytest.raises(KeyboardInterrupt):
            store.writer.commit([Job(store.transition(machine.claim, a_claim()))])
    assert store.get(None, "k") is not None
    assert type(store.claim(a_claim("after"))) is Granted


class Torn(Exception):  # noqa: N818 - what a signal raises
    """Raised between two lines of the writer."""


def torn(*_):
    raise Torn


@pytest.mark.parametrize("taken", [False, True])
def test_a_leader_that_was_torn_away_is_replaced(path, monkeypatch, taken):
    """A signal came before it could hand over; it may have had the jobs of another caller."""
    store = SQLiteStore(path)  # not closed unless all went well: that would wait for the leader
    monkeypatch.setattr(writer, "LOOK_EVERY", 0.01)
    store.claim(a_claim("first"))
    with monkeypatch.context() as cut, pytest.raises(Torn):
        cut.setattr(writer.Writer, "_hand_over", torn)
        store.writer.commit([Job(store.transition(machine.claim, a_claim("torn")))])
    if taken:
        with monkeypatch.context() as gone:
            gone.setattr(store.writer, "_queue", Forgetful())
            with pytest.raises(StoreError, match="cut off") as unknown:
                store.claim(a_claim("k"))
        assert unknown.value.happened is None
    for key in ("after", "later"):
        asking = Asking(store, a_claim(key))
        until(lambda asking=asking: asking.heard)
        assert type(asking.heard[0]) is Granted
    store.close()


def a_frame_that_has_ended():
    return compat.runner()


@pytest.mark.parametrize("fast", BOTH_WAYS)
def test_who_replaces_a_leader_serves_itself(path, fast):
    """Others may have come before it, among them a fork that was cut off."""
    store = SQLiteStore(path, fast=fast)
    lines = store.writer
    keys = ("first", "second", "third")
    jobs = [Job(store.transition(machine.claim, a_claim(key))) for key in keys]
    turns = [writer._Turn([job], compat.runner()) for job in jobs]
    gone = writer._Turn([], a_frame_that_has_ended(), pauses=True)
    lines._queue.extend([gone, *turns])
    lines._leader = gone
    assert lines._takes_over(turns[1])
    lines._lead()
    assert type(jobs[1].value) is Granted
    assert [job.value is None for job in jobs] == ([False] * 3 if fast else [True, False, True])
    assert gone not in lines._queue
    lines._queue.clear()
    lines._leader = None
    store.close()


def test_a_leader_that_is_slow_is_not_replaced(store, monkeypatch):
    monkeypatch.setattr(writer, "LOOK_EVERY", 0.01)
    looked = []
    look = writer.has_left
    monkeypatch.setattr(writer, "has_left", lambda runner: looked.append(look(runner)))
    leader = Leader(store)
    waiting = Asking(store, a_claim("k"))
    until(lambda: len(looked) > 1)
    assert not any(looked)
    assert not waiting.heard
    leader.finish()
    until(lambda: waiting.heard)
    assert type(waiting.heard[0]) is Granted


def test_a_caller_that_was_made_the_leader_and_not_woken_leads(store, monkeypatch):
    """A signal came while the leader before it handed over."""
    monkeypatch.setattr(writer, "LOOK_EVERY", 0.01)
    leader = Leader(store)
    waiting = Asking(store, a_claim("k"))
    queued(store, 1)
    store.writer._leader = store.writer._queue[0]  # and no more of it
    until(lambda: waiting.heard)
    assert type(waiting.heard[0]) is Granted
    leader.finish()


class TooSoon:
    """A lock whose owner ends its wait in the moment in which it is woken."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lock.acquire()

    def acquire(self, *, timeout):
        self._lock.acquire()
        self._lock.release()
        return False

    def release(self):
        self._lock.release()


def test_who_looks_in_the_moment_of_being_woken_leads_like_others(store, monkeypatch):
    leader = Leader(store)

    class Turn(writer._Turn):
        def __init__(self, *arguments, **how):
            super().__init__(*arguments, **how)
            self.wake = TooSoon()

    with monkeypatch.context() as patched:
        patched.setattr(writer, "_Turn", Turn)
        waiting = Asking(store, a_claim("k"))
        queued(store, 1)
        leader.finish()
        until(lambda: waiting.heard)
    assert type(waiting.heard[0]) is Granted
    assert type(store.claim(a_claim("after"))) is Granted


class Forgetful(deque[object]):
    """A queue from which a leader that is gone has taken what came."""

    def append(self, _):
        """Keep nothing."""


@pytest.mark.parametrize("handed_over", [False, True])
def test_who_is_cut_off_while_it_waits_is_not_waited_for(store, monkeypatch, handed_over):
    leader = Leader(store)
    real = writer._Turn

    def turn(jobs, runner):
        made = real(jobs, runner)
        made.wake = CutOff(leader.finish if handed_over else lambda: None)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(writer, "_Turn", turn)
        with pytest.raises(KeyboardInterrupt):
            store.writer.commit([Job(store.transition(machine.claim, a_claim()))])
    if not handed_over:
        leader.finish()
    assert store.get(None, "k") is None
    assert type(store.claim(a_claim())) is Granted


def test_closing_waits_for_whoever_leads(store):
    leader = Leader(store)
    closer = threading.Thread(target=store.close, daemon=True)
    closer.start()
    queued(store, 1)
    leader.finish()
    closer.join(PATIENCE)
    assert store.writer.connection is None


def test_a_duplicate_is_read_while_somebody_leads(store):
    store.claim(a_claim())
    leader = Leader(store)
    assert type(store.claim(a_claim(nonce="other"))) is Busy
    leader.finish()


async def test_coroutines_hear_of_errors_too(store):
    asynchronous = store.as_async()
    await asynchronous.claim(a_claim())
    real = store.writer.connection
    store.writer.connection = Broken(real, sqlite_file.INSERT)
    with pytest.raises(StoreError):
        await asynchronous.claim(a_claim("other"))
    store.writer.connection = real
    await asynchronous.aclose()
    assert type(await asynchronous.claim(a_claim("other"))) is Granted
    await asynchronous.aclose()
    await asynchronous.aclose()


def test_a_loop_that_is_closed_is_not_told(store):
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    loop.close()
    job = Job(lambda connection, now: 1, future)
    store.writer.commit([job])
    assert job.value == 1


async def test_a_future_that_was_cancelled_is_left_alone(store):
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await asyncio.to_thread(store.writer.commit, [Job(lambda connection, now: 1, future)])
    await asyncio.sleep(0)
    assert future.cancelled()


def test_a_forked_child_has_connections_of_its_own(store):
    asynchronous = store.as_async()
    store.claim(a_claim())
    store.get(None, "k")
    mine = (store._reader, store.writer.connection)
    for thing in (store, asynchronous._leader):
        thing.after_fork()
    assert (store._reader, store.writer.connection) == (None, None)
    assert compat._left_alone[-2:] == list(mine)
    assert type(store.claim(a_claim(nonce="child"))) is Busy
    for connection in mine:
        connection.close()


def test_no_statement_numbers_its_marks():
    """Python 3.12.0 to 3.12.3 would warn of each, and fail where warnings are errors."""
    said = [value for value in vars(sqlite_file).values() if isinstance(value, str)]
    said += [sqlite_file.insert_many(2), sqlite_file.settle_many(2), sqlite_file.select_many(2)]
    assert sum("?" in statement for statement in said) > 10
    assert [statement for statement in said if re.search(r"\?\d", statement)] == []


def test_who_is_not_needed_any_more_has_closed_the_file(path):
    store = SQLiteStore(path)
    store.claim(a_claim())
    store.get(None, "k")
    opened = (store._reader, store.writer.connection)
    del store
    gc.collect()
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_what_was_refused_has_nothing_to_close():
    with pytest.raises(ConfigurationError):
        SQLiteStore("")
    gc.collect()


def test_closing_twice_and_going_on_is_fine(store):
    store.claim(a_claim())
    store.close()
    store.close()
    assert type(store.claim(a_claim(nonce="again"))) is Busy


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_database_without_a_file_is_refused(path):
    with pytest.raises(ConfigurationError, match="memory://"):
        SQLiteStore(path)


async def test_coroutines_have_every_verb(store):
    other = store.as_async()
    owned = {"token": (await other.claim(a_claim())).record.token, "nonce": a_claim().nonce}
    place = (None, a_claim().key)
    life = {"lease": 10**8, "ttl": 10**8}
    assert await other.renew(Renew(*place, **owned, **life)) is Verdict.DONE
    assert await other.note(Note(*place, **owned, noted=b"", revision=1)) is Verdict.DONE
    end = {"error": None, "uncertain": True, "hold": True, "unused": False}
    assert (
        await other.release(Release(*place, **owned, **end, counted=False, bare_ttl=1, ttl=1))
        is Verdict.DONE
    )
    held = await other.get(*place)
    said = {"status": "released", "result": None, "error": None, "ttl": 10**8}
    assert await other.resolve(Resolve(*place, token=held.token, **said)) is Verdict.DONE
    free = await other.get(*place)
    assert await other.forget(Forget(*place, token=free.token, force=False)) is Verdict.DONE
    assert await other.get(*place) is None
    await other.aclose()


@pytest.mark.parametrize("fast", [None, 1, "no"])
def test_fast_is_true_or_false(path, fast):
    with pytest.raises(ConfigurationError, match=f"fast must be True or False, not {fast!r}"):
        SQLiteStore(path, fast=fast)


def test_the_slow_way_is_a_transaction_for_each_write(path):
    store = SQLiteStore(path, fast=False)
    store.claim(a_claim())
    statements = []
    store.writer.connection.set_trace_callback(statements.append)
    leader = Leader(store)
    crowd = [threading.Thread(target=store.claim, args=(a_claim(f"k{n}"),)) for n in range(10)]
    for one in crowd:
        one.start()
    queued(store, 10)
    leader.finish()
    for one in crowd:
        one.join(PATIENCE)
    assert statements.count("COMMIT") == 11
    assert sum(text.startswith("INSERT") for text in statements) == 10
    store.close()


async def test_the_slow_way_is_the_slow_way_for_coroutines(path):
    store = SQLiteStore(path, fast=False)
    other = store.as_async()
    await other.claim(a_claim())
    statements = []
    store.writer.connection.set_trace_callback(statements.append)
    told = await asyncio.gather(*(other.claim(a_claim(f"k{n}")) for n in range(10)))
    assert {type(one) for one in told} == {Granted}
    assert statements.count("COMMIT") == 10
    await other.aclose()


def test_the_thread_of_the_coroutines_survives_whatever_one_job_raises(store, caplog):
    other = store.as_async()

    def broken(connection, now):
        raise LookupError

    async def main():
        with pytest.raises(StoreError) as caught:
            await other._leader.hand(Job(broken))
        assert caught.value.happened is None
        assert type(await other.claim(a_claim())) is Granted
        await other.aclose()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert "a commit for coroutines failed" in caplog.text


def test_without_fast_paths_a_released_record_is_read_and_then_granted(path):
    store = SQLiteStore(path, fast=False)
    first = store.claim(asks.ask()).record
    store.release(asks.release(first))
    second = store.claim(asks.ask(nonce="b"))
    assert isinstance(second, Granted)
    assert second.record.attempt == 2
    store.close()
