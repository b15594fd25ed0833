"""Forks while other threads use a SQLite file, and what becomes of the child's records."""

import subprocess
import sys
import threading

import pytest

from oncekey.compat import runner
from oncekey.core import machine
from oncekey.core.requests import Claim, Granted
from oncekey.stores import SQLiteStore
from oncekey.stores.sqlite import writer
from oncekey.stores.sqlite.writer import Job
from tests.patience import PATIENCE, until


def a_claim(key="k"):
    return Claim(None, key, nonce="n", fingerprint=None, lease=10**8, ttl=10**8)


class Asking:
    """A thread that does something, which a test does not have to wait for."""

    def __init__(self, what):
        self.heard = []
        self.thread = threading.Thread(target=lambda: self.heard.append(what()), daemon=True)
        self.thread.start()

    def answer(self):
        until(lambda: self.heard)
        return self.heard[0]


@pytest.fixture
def store(tmp_path):
    made = SQLiteStore(tmp_path / "records.db", busy_timeout="1h")
    made.claim(a_claim("first"))
    made.get(None, "first")
    yield made
    Asking(made.close).answer()  # whatever a test has left behind


class Leader:
    """A thread that writes until it is told to go on."""

    def __init__(self, store):
        self.inside, self.go_on = threading.Event(), threading.Event()

        def work(connection, now):
            self.inside.set()
            assert self.go_on.wait(2 * PATIENCE)

        self.asking = Asking(lambda: store.writer.commit([Job(work)]))
        assert self.inside.wait(PATIENCE)

    def finish(self):
        self.go_on.set()
        self.asking.answer()


def ended():
    """The frame of a call that has returned."""
    return runner()


def queued(store, number):
    until(lambda: len(store.writer._queue) >= number)


# One thread at a time


def test_a_fork_waits_for_whoever_writes_and_others_for_the_fork(store):
    forker = runner()
    leader = Leader(store)
    before = Asking(lambda: store.claim(a_claim("before")))
    queued(store, 1)
    forking = Asking(lambda: store.before_fork(forker, PATIENCE))
    queued(store, 2)
    behind = Asking(lambda: store.claim(a_claim("behind")))
    queued(store, 3)
    assert not forking.heard
    leader.finish()
    assert type(before.answer()) is Granted
    forking.answer()
    reading = Asking(lambda: store.get(None, "before"))
    assert (store._reader, store.writer.connection) == (None, None)
    assert not behind.heard
    assert not reading.heard
    store.after_fork_in_parent(forker)
    assert type(behind.answer()) is Granted
    assert reading.answer().key == "before"


@pytest.mark.parametrize("busy", ["writing", "queueing", "reading"])
def test_a_fork_does_not_wait_for_ever(store, busy):
    """Not even where the thread that forks is the one that has the lock, in a signal handler."""
    forker = runner()
    if busy == "writing":
        leader = Leader(store)
        store.before_fork(forker, 0.01)
        leader.finish()
    elif busy == "queueing":
        with store.writer._lock:
            store.before_fork(forker, 0.01)
    else:
        with store._read_lock:
            store.before_fork(forker, 0.01)
    store.after_fork_in_parent(forker)
    assert type(store.claim(a_claim())) is Granted
    assert store.get(None, "k") is not None


def test_who_forks_meanwhile_does_not_let_others_in(store):
    forker = runner()
    store.before_fork(forker, PATIENCE)
    other = ended()
    store.before_fork(other, 0.01)
    store.after_fork_in_parent(other)
    job = store.job(machine.claim, a_claim())
    waiting = [
        Asking(lambda: store.writer.commit([job])),
        Asking(lambda: store.get(None, "first")),
    ]
    queued(store, 1)
    assert not any(one.heard for one in waiting)
    store.after_fork_in_parent(forker)
    for one in waiting:
        one.answer()


def test_a_fork_that_is_gone_is_not_waited_for(store, monkeypatch):
    """A signal came before others were let in again."""
    monkeypatch.setattr(writer, "LOOK_EVERY", 0.01)
    store.writer.pause(ended())
    assert type(Asking(lambda: store.claim(a_claim())).answer()) is Granted


def test_a_fork_takes_over_from_a_leader_that_was_torn_away(store, monkeypatch):
    monkeypatch.setattr(writer, "LOOK_EVERY", 0.01)
    store.writer._leader = writer._Turn([], ended())
    forker = runner()
    Asking(lambda: store.before_fork(forker, PATIENCE)).answer()
    assert store.writer.connection is None
    store.after_fork_in_parent(forker)


def test_a_fork_that_was_handed_the_lead_and_not_woken_goes_on(store, monkeypatch):
    """A signal came while the leader before it handed over."""
    monkeypatch.setattr(writer, "LOOK_EVERY", 0.01)
    forker = runner()
    leader = Leader(store)
    forking = Asking(lambda: store.before_fork(forker, PATIENCE))
    queued(store, 1)
    store.writer._leader = store.writer._queue[0]  # and no more of it
    forking.answer()
    store.after_fork_in_parent(forker)
    leader.finish()
    assert type(store.claim(a_claim())) is Granted


# Real forks. They have a process of their own: pytest has threads, and Python warns of that


COMMON = """
import os, sys, threading
from oncekey import Once, compat
from oncekey.stores import SQLiteStore
from tests.patience import PATIENCE, until

compat.FORK_PATIENCE = PATIENCE

def effect():
    return 1

def child(run):
    pid = os.fork()
    if pid == 0:
        try:
            run()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return pid

def end(pid):
    def ended():
        found, status = os.waitpid(pid, os.WNOHANG)
        return found and [os.waitstatus_to_exitcode(status)]
    try:
        codes = until(ended)
    except AssertionError:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        raise
    assert codes == [0], codes

store = SQLiteStore(sys.argv[1], busy_timeout=sys.argv[2])
once = Once(store, observers=())
"""

IN_THE_MIDDLE = """
from oncekey.stores.sqlite.writer import Job
inside, go_on = threading.Event(), threading.Event()

def work(connection, now):
    inside.set()
    assert go_on.wait(PATIENCE)

before_fork = SQLiteStore.before_fork
def waits(self, *given):
    go_on.set()
    before_fork(self, *given)
SQLiteStore.before_fork = waits

once.run("first", effect)
writes = threading.Thread(target=lambda: store.writer.commit([Job(work)]), daemon=True)
writes.start()
assert inside.wait(PATIENCE)
pid = child(lambda: once.run("child", effect))
go_on.set()
end(pid)
assert once.get("child").status == "completed"
"""

ALL_THE_TIME = """
stop = threading.Event()
def write(number):
    count = 0
    while not stop.is_set():
        count += 1
        once.run(f"{number}:{count}", effect)
        store.get(None, f"{number}:{count}")
threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(4)]
for thread in threads:
    thread.start()
pids = [child(lambda: once.run(f"child:{number}", effect)) for number in range(20)]
stop.set()
for pid in pids:
    end(pid)
for thread in threads:
    thread.join(PATIENCE)
assert {once.get(f"child:{number}").status for number in range(20)} == {"completed"}
"""

LEFT_BEHIND = """
once.run("first", effect)
store.get(None, "first")
(asks, told), (hears, tells) = os.pipe(), os.pipe()

def run():
    once.run("early", effect)
    os.write(told, b"x")
    os.read(hears, 1)
    once.run("late", effect)
    store.get(None, "late")

pid = child(run)
os.read(asks, 1)
store.close()
os.write(tells, b"x")
end(pid)
assert [once.get(key) and key for key in ("first", "early", "late")] == ["first", "early", "late"]
"""


def play(script, path, busy_timeout="1h"):
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMMON + script, str(path), busy_timeout],
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_child_that_is_forked_in_the_middle_of_a_write_can_write(tmp_path):
    """SQLite would take the lock of the parent for one of the child's, for ever."""
    play(IN_THE_MIDDLE, tmp_path / "records.db", "1s")


def test_children_of_a_process_whose_threads_write_all_the_time_can_write(tmp_path):
    play(ALL_THE_TIME, tmp_path / "records.db")


def test_what_a_child_writes_outlasts_its_parent(tmp_path):
    """SQLite would take the parent's lock for its own, and write into a log that is removed."""
    play(LEFT_BEHIND, tmp_path / "records.db")
