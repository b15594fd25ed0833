"""The keeper: chores in time, one after the other, whatever they do."""

import atexit
import os
import subprocess
import sys
import threading
from time import monotonic

import pytest

from oncekey.engine import keeper as lease
from oncekey.engine.keeper import Chore, Keeper
from tests.patience import PATIENCE

LONG = PATIENCE


class Job(Chore):
    """Counts, tells, and does what it was told to answer."""

    __slots__ = ("answers", "done", "given_up", "must", "times")

    def __init__(self, *answers, urgent=False):
        super().__init__()
        self.answers = list(answers)
        self.done = threading.Event()
        self.times = 0
        self.must = urgent
        self.given_up = False

    def give_up(self):
        assert not self.given_up
        self.given_up = True

    def do(self):
        self.times += 1
        answer = self.answers.pop(0) if self.answers else None
        if not self.answers:
            self.done.set()
        if isinstance(answer, Exception):
            raise answer
        return answer() if callable(answer) else answer

    @property
    def urgent(self):
        return self.must


@pytest.fixture
def keeper():
    keeper = Keeper()
    yield keeper
    keeper.finish()
    atexit.unregister(keeper.finish)


class Still(Keeper):
    """A keeper without a thread, whose clock is moved by hand."""

    def _start(self):
        """Nothing runs by itself."""


@pytest.fixture
def still(monkeypatch):
    class Clock:
        """Moved for the test; the keeper of the process, on its thread, has the real time."""

        now = 100.0
        mine = threading.get_ident()

        def __call__(self):
            return self.now if threading.get_ident() == self.mine else monotonic()

    keeper = Still()
    clock = Clock()
    monkeypatch.setattr(lease, "monotonic", clock)
    yield keeper, clock
    atexit.unregister(keeper.finish)


def test_no_thread_runs_before_there_is_something_to_do(keeper):
    assert keeper._thread is None
    job = Job()
    keeper.take_up(job, 0.0)
    assert job.done.wait(LONG)
    assert keeper._thread.name == "oncekey-keeper"
    assert keeper._thread.daemon


def test_one_thread_does_all_chores(keeper):
    threads = []
    jobs = [Job(lambda: threads.append(threading.current_thread())) for _ in range(5)]
    for delay, job in enumerate(jobs):
        keeper.take_up(job, delay / 1000)
    last = Job()
    keeper.take_up(last, 0.05)
    assert all(job.done.wait(LONG) for job in [*jobs, last])
    assert threads == [keeper._thread] * 5


def test_a_chore_is_done_again_until_it_says_that_it_is_over(keeper):
    job, other = Job(0.0, 0.001, 0.0, None), Job(0.01, None)
    keeper.take_up(job, 0.0)
    keeper.take_up(other, 0.0)
    assert job.done.wait(LONG)
    assert other.done.wait(LONG)
    assert (job.times, other.times) == (4, 2)


def test_what_is_due_sooner_is_not_kept_waiting_by_what_is_due_later(keeper):
    late, soon = Job(), Job()
    keeper.take_up(late, 3600.0)
    keeper.take_up(soon, 0.01)
    assert soon.done.wait(LONG)
    assert late.times == 0


def test_chores_are_due_in_the_order_of_their_times(still):
    keeper, clock = still
    first, second, third = Job(), Job(), Job()
    keeper.take_up(second, 2.0)
    keeper.take_up(first, 1.0)
    clock.now += 0.5
    keeper.take_up(third, 2.0)
    assert keeper._due() == []
    assert keeper._wakes_at == 101.0
    clock.now = 101.0
    assert keeper._due() == [first]
    assert keeper._wakes_at == 102.0
    clock.now = 102.4
    assert keeper._due() == [second]
    clock.now = 102.5
    assert keeper._due() == [third]
    assert keeper._wakes_at == clock.now + 3600
    assert keeper._due() == []


def test_of_chores_that_are_overdue_the_oldest_comes_first(still):
    keeper, clock = still
    second, first = Job(), Job()
    keeper.take_up(second, 2.0)
    keeper.take_up(first, 1.0)
    clock.now += 5
    assert keeper._due() == [first, second]


def test_odd_delays_do_not_pile_up(still):
    keeper, clock = still
    for n in range(200):
        keeper.take_up(Job(), 1.0 + n / 1000)
    assert len(keeper._queues) == 200
    clock.now += 2
    assert len(keeper._due()) == 200
    assert len(keeper._queues) <= 64
    keeper.take_up(Job(), 1.0)
    clock.now += 1
    assert len(keeper._due()) == 1


def test_clearing_up_loses_no_chore(still):
    keeper, clock = still
    jobs = [Job() for _ in range(200)]
    for n, job in enumerate(jobs):
        keeper.take_up(job, 1.0 + n)
    clock.now += 100
    early = keeper._due()
    clock.now += 100
    assert early + keeper._due() == jobs


def test_a_dropped_chore_is_not_done(still):
    keeper, clock = still
    job, other = Job(), Job()
    keeper.take_up(job, 1.0)
    keeper.drop(job)
    keeper.drop(job)
    keeper.take_up(other, 2.0)
    clock.now += 3
    assert keeper._due() == [other]


def test_a_chore_that_nobody_keeps_can_be_dropped(keeper):
    keeper.drop(Job())


def test_a_chore_that_is_dropped_while_its_turn_comes_is_not_done(keeper):
    second = Job()

    def drop():
        keeper.drop(second)

    first, last = Job(drop), Job()
    with keeper._changed:
        for job in (first, second, last):
            keeper._enqueue(job, 0.0)
    assert last.done.wait(LONG)
    assert (first.times, second.times) == (1, 0)


def test_a_chore_that_is_dropped_while_it_is_done_is_not_done_again(keeper):
    job, last = Job(), Job()

    def drop():
        keeper.drop(job)
        return 0.0

    job.answers = [drop, None]
    keeper.take_up(job, 0.0)
    keeper.take_up(last, 0.03)
    assert last.done.wait(LONG)
    assert job.times == 1


def test_a_chore_that_fails_is_given_up_and_stops_no_other(keeper, caplog):
    bad, good = Job(RuntimeError("broken"), 0.0, None), Job(0.0, None)
    keeper.take_up(bad, 0.0)
    keeper.take_up(good, 0.01)
    assert good.done.wait(LONG)
    assert (bad.times, good.times) == (1, 2)
    [entry] = caplog.records
    assert (entry.name, entry.levelname) == ("oncekey", "ERROR")
    assert entry.getMessage() == "a chore of the keeper failed and is given up"
    assert "broken" in caplog.text


def test_a_chore_must_say_what_it_does():
    with pytest.raises(NotImplementedError):
        Chore().do()
    assert not Chore().urgent


def test_at_the_end_what_is_urgent_is_tried_once_more(keeper):
    must, may, other = Job(1.0, None, urgent=True), Job(), Job(None, urgent=True)
    keeper.take_up(must, 3600.0)
    keeper.take_up(may, 3600.0)
    keeper.take_up(other, 1800.0)
    thread = keeper._thread
    keeper.finish()
    assert (must.times, may.times, other.times) == (1, 0, 1)
    assert [job.given_up for job in (must, may, other)] == [True, False, False]
    assert not thread.is_alive()


def test_at_the_end_a_failing_chore_costs_the_others_nothing(keeper):
    bad, good = Job(RuntimeError("broken"), urgent=True), Job(urgent=True)
    keeper.take_up(bad, 3600.0)
    keeper.take_up(good, 3600.0)
    keeper.finish()
    assert (bad.times, good.times) == (1, 1)


# Lanes


class Errand(Job):
    """A job that waits for a store."""

    __slots__ = ("store",)

    def __init__(self, store, *answers, urgent=False):
        super().__init__(*answers, urgent=urgent)
        self.store = store

    @property
    def lane(self):
        return self.store


def test_a_store_that_hangs_holds_up_nobody_else(keeper):
    gate, begun = threading.Event(), threading.Event()

    def hang():
        begun.set()
        assert gate.wait(LONG)

    hanging, behind = Errand("slow", hang), Errand("slow")
    keeper.take_up(hanging, 0.0)
    assert begun.wait(LONG)
    keeper.take_up(behind, 0.0)
    others = [Errand("swift", 0.0, None), Job(0.0, None)]
    for other in others:
        keeper.take_up(other, 0.0)
    assert all(other.done.wait(LONG) for other in others)
    assert behind.times == 0
    gate.set()
    assert behind.done.wait(LONG)


def test_the_thread_of_a_store_ends_when_nothing_is_due(keeper):
    names = []
    for _ in range(3):
        job = Errand("store", lambda: names.append(threading.current_thread()))
        keeper.take_up(job, 0.0)
        assert job.done.wait(LONG)
    with keeper._changed:
        assert keeper._changed.wait_for(lambda: not keeper._lanes, LONG)
    assert {thread.name for thread in names} == {"oncekey-keeper-store"}


def test_where_one_did_not_get_through_the_others_need_not_try(keeper):
    """They come before it the next time, in case that it never gets through."""
    gate = threading.Event()
    first = Errand("store", lambda: gate.wait(LONG) and 3600.0, urgent=True)
    others = [Errand("store", urgent=True) for _ in range(5)]
    renewal = Errand("store")
    keeper.take_up(first, 0.0)
    for job in (*others, renewal):
        keeper.take_up(job, 0.0)
    marker = Job()
    keeper.take_up(marker, 0.01)
    assert marker.done.wait(LONG)  # all were handed over by now
    gate.set()
    assert renewal.done.wait(LONG)
    assert [job.times for job in (first, *others, renewal)] == [1, 0, 0, 0, 0, 0, 1]
    with keeper._changed:
        assert keeper._changed.wait_for(lambda: not keeper._lanes, LONG)
    assert all(job.queue[job] < first.queue[first] for job in others)


def test_without_a_thread_for_the_store_the_keeper_does_it_itself(keeper, monkeypatch):
    job, first = Errand("store"), Job()
    keeper.take_up(first, 0.0)
    assert first.done.wait(LONG)

    def refuse(self):
        msg = "can't start new thread"
        raise RuntimeError(msg)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    keeper.take_up(job, 0.0)
    assert job.done.wait(LONG)


def test_at_the_end_what_a_store_refuses_keeps_nothing_else_from_being_tried(still):
    """It may refuse one record for ever, and take all others."""
    keeper, _ = still
    refused = [Errand("store", 1.0, urgent=True) for _ in range(2)]
    taken = [Errand("store", urgent=True) for _ in range(2)]
    for job in (refused[0], taken[0], refused[1], taken[1]):
        keeper.take_up(job, 3600.0)
    keeper.finish()
    assert [job.times for job in (*refused, *taken)] == [1, 1, 1, 1]
    assert [job.given_up for job in (*refused, *taken)] == [True, True, False, False]


def test_at_the_end_a_store_that_is_down_is_not_asked_for_long(still):
    keeper, clock = still

    def time_out():
        clock.now += 5.0
        return 1.0

    down = [Errand("down", time_out, urgent=True) for _ in range(3)]
    up = [Errand("up", urgent=True) for _ in range(3)]
    for job in (*down, *up):
        keeper.take_up(job, 3600.0)
    keeper.finish()
    assert [job.times for job in (*down, *up)] == [1, 0, 0, 1, 1, 1]
    assert [job.given_up for job in (*down, *up)] == [True] * 3 + [False] * 3


def test_at_the_end_a_store_that_hangs_is_not_waited_for_for_ever(keeper, monkeypatch):
    monkeypatch.setattr(lease, "_LAST_CHANCE", 0.05)
    gate, begun = threading.Event(), threading.Event()
    hanging = Errand("slow", lambda: (begun.set(), gate.wait(LONG))[0], urgent=True)
    behind, other = Errand("slow", urgent=True), Errand("swift", urgent=True)
    keeper.take_up(hanging, 0.0)
    assert begun.wait(LONG)
    keeper.take_up(behind, 3600.0)
    keeper.take_up(other, 3600.0)
    keeper.finish()
    assert (behind.times, other.times) == (0, 1)
    assert [job.given_up for job in (hanging, behind, other)] == [True, True, False]
    gate.set()


def test_at_the_end_what_is_urgent_elsewhere_does_not_wait_for_a_store_that_hangs(
    keeper, monkeypatch
):
    monkeypatch.setattr(lease, "_LAST_CHANCE", LONG)
    other, begun, served = Errand("swift", urgent=True), threading.Event(), []

    def hang():
        begun.set()
        served.append(other.done.wait(LONG / 2))

    keeper.take_up(Errand("slow", hang), 0.0)
    assert begun.wait(LONG)
    keeper.take_up(other, 3600.0)
    keeper.finish()
    assert served == [True]  # while the other store was hanging


def test_a_chore_that_fails_at_the_end_keeps_no_other_from_its_end(keeper, caplog):
    class Ending(Job):
        __slots__ = ("ended",)

        def at_end(self):
            self.ended = True
            raise self.answers[0]

    chores = [Ending(ValueError("first")), Ending(ValueError("second"))]
    for chore in chores:
        keeper.take_up(chore, LONG)
    keeper.finish()
    assert [chore.ended for chore in chores] == [True, True]
    assert caplog.text.count("failed when the process ended") == 2


def test_a_keeper_that_has_finished_can_begin_again(keeper):
    keeper.finish()
    keeper.finish()
    job = Job()
    keeper.take_up(job, 0.0)
    assert job.done.wait(LONG)


def test_the_chores_of_a_parent_stay_with_the_parent(still):
    keeper, clock = still
    job = Job()
    keeper.take_up(job, 0.0)
    keeper._changed.acquire()
    keeper._stopping = True
    keeper.after_fork()
    clock.now += 1
    assert keeper._due() == []
    assert not keeper._stopping
    keeper.take_up(Job(), 0.0)


FORK = """
import os, threading
from oncekey.engine.keeper import Chore, keeper

class Job(Chore):
    def __init__(self):
        super().__init__()
        self.done = threading.Event()
    def do(self):
        self.done.set()
        return 0.01

mine, late = Job(), Job()
keeper.take_up(mine, 0.0)
keeper.take_up(late, 3600.0)
assert mine.done.wait(300)
child = os.fork()
if child == 0:
    mine.done.clear()
    own = Job()
    keeper.take_up(own, 0.0)
    ok = own.done.wait(300) and not mine.done.is_set()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""

EXIT = """
from oncekey.engine.keeper import Chore, keeper

class Must(Chore):
    urgent = True
    def do(self):
        print("recorded", flush=True)

class May(Chore):
    def do(self):
        print("too late", flush=True)

keeper.take_up(Must(), 3600.0)
keeper.take_up(May(), 3600.0)
"""

FINALIZING = """
import asyncio
from oncekey import Once

@Once("memory://")("hangs")
async def hang():
    await asyncio.get_running_loop().create_future()

async def begin():
    task = asyncio.ensure_future(hang())
    await asyncio.sleep(0)
    return task

loop = asyncio.new_event_loop()
task = loop.run_until_complete(begin())
"""


def run(script):
    quiet = {
        **os.environ,
        "PYTHONWARNINGS": "ignore",
    }  # newer Pythons warn of any fork with threads
    return subprocess.run(
        [sys.executable, "-c", script], env=quiet, capture_output=True, text=True, check=False
    )


def test_a_forked_child_has_a_keeper_of_its_own():
    ended = run(FORK)
    assert ended.returncode == 0, ended.stderr


def test_what_is_urgent_is_tried_when_the_process_ends():
    ended = run(EXIT)
    assert (ended.returncode, ended.stdout) == (0, "recorded\n"), ended.stderr


def test_a_call_that_the_interpreter_destroys_at_its_end_starts_no_thread():
    """Python 3.11 would wait for ever for the thread to begin."""
    with subprocess.Popen(
        [sys.executable, "-c", FINALIZING], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _, said = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("it does not end")
    assert process.returncode == 0
    assert "Task was destroyed but it is pending" in said


def test_what_comes_when_the_interpreter_has_ended_is_given_up(keeper, monkeypatch):
    job = Job(urgent=True)
    with monkeypatch.context() as ending:
        ending.setattr(sys, "is_finalizing", lambda: True)
        keeper.take_up(job, 0.0)
    assert job.given_up
    assert keeper._thread is None


def test_at_the_end_of_the_interpreter_a_chore_waits_for_finish(monkeypatch):
    """Python 3.12 starts no thread then; what is urgent is done all the same."""

    def refuse(self):
        msg = "can't create new thread at interpreter shutdown"
        raise RuntimeError(msg)

    keeper = Keeper()
    job = Job(urgent=True)
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        keeper.take_up(job, 3600.0)
    assert keeper._thread is None
    keeper.finish()
    assert job.times == 1
