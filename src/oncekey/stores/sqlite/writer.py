"""The writer of a SQLite file: one connection, one leader at a time, and no thread of its own.

A caller that finds no leader becomes the leader. Callers that come meanwhile queue. When the leader
is done it hands over to the first of them, which commits everything that is queued by then in one
transaction and wakes the callers that it served. So a single caller pays for its own commit only,
and sixteen callers pay for two or three.

A lease must be counted from a time at which the file can be written. So no statement waits for
another process: SQLite's own busy timeout is switched off, and what finds the file locked is run
again, with a new time.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from oncekey.compat import Runner, has_left, runner
from oncekey.core import machine
from oncekey.core.requests import Claim, Request, Verdict
from oncekey.errors import ConfigurationError, OncekeyError, StoreError
from oncekey.stores.sqlite import statements as file
from oncekey.stores.sqlite.schema import Connection, when_unlocked
from oncekey.stores.sqlite.statements import UNFIT, is_locked, unfit

T = TypeVar("T")

_LARGEST_BATCH: Final = 512
LOOK_EVERY: Final = 1.0
"""Seconds after which a caller that waits looks whether there still is a leader."""

Explain = Callable[[sqlite3.Error], StoreError]


class Job:
    """One write that waits for a transaction, and its result or error."""

    __slots__ = ("ask", "error", "future", "plain", "unread", "value", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection, int], Any],
        future: asyncio.Future[Any] | None = None,
        ask: Request | None = None,
        *,
        plain: bool = False,
        unread: bool = False,
    ) -> None:
        """`work` runs inside of the transaction; `future` gets the result on its own loop.

        `ask` is the request behind `work`. `plain` says that it is most likely the claim of a new
        key, or the settle of an owner. `unread` says that it is a claim that may need no
        transaction.
        """
        self.work = work
        self.ask = ask
        self.plain = plain
        self.unread = unread
        self.future = future
        self.value: Any = None
        self.error: OncekeyError | None = None


class _Turn:
    """The jobs of one thread, which sleeps until they are done or until it has to lead.

    `pauses` says that it keeps others from writing, and cannot be served by them.
    """

    __slots__ = ("jobs", "leads", "pauses", "runner", "wake")

    def __init__(self, jobs: list[Job], runner: Runner | None, *, pauses: bool = False) -> None:
        self.jobs = jobs
        self.pauses = pauses
        self.leads = False
        self.runner = runner
        self.wake = threading.Lock()
        self.wake.acquire()

    def awaken(self) -> None:
        """Wake the thread, unless it was woken before and has looked by itself just then."""
        with suppress(RuntimeError):  # the lock is free already
            self.wake.release()


class Writer:
    """The connection that writes, and the queue of callers."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        explain: Explain,
        clock: Callable[[], int],
        *,
        busy_timeout: float,
        fast: bool = True,
    ) -> None:
        """Store the settings. The first leader opens the connection.

        A transaction waits `busy_timeout` seconds for other processes. Without `fast` it has the
        jobs of one caller only.
        """
        self._fast = fast
        self._busy_timeout = busy_timeout
        self._connect = connect
        self._explain = explain
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Turn] = deque()
        self._leader: _Turn | Runner | None = None
        self.connection: Connection | None = None

    def alone(self, work: Callable[[sqlite3.Connection], T | None]) -> T | None:
        """Return what `work` returns, or None if another caller leads now, or without `fast`.

        Each statement of `work` is a transaction of its own. It is called again if it finds the
        file locked by another process.
        """
        if not self._fast:
            return None
        mine = runner()
        try:
            with self._lock:
                if self._leader is not None:
                    return None
                self._leader = mine
            connection = self.connection
            if connection is None or time.monotonic() > connection.looks_at:
                connection = self._open()
            try:
                return work(connection)
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
            return when_unlocked(partial(work, connection), self._busy_timeout)
        except sqlite3.Error as error:
            raise self._explain(error) from error
        except UNFIT as error:
            raise unfit(error) from error
        finally:
            if self._leader is mine:
                self._hand_over([])
            mine = None  # this frame itself: avoid a cycle

    def commit(self, jobs: list[Job]) -> None:
        """Run the jobs and commit them. Afterwards each has its value or its error."""
        mine = _Turn(jobs, runner())
        try:
            with self._lock:
                self._queue.append(mine)
                if self._leader is None:
                    self._leader, mine.leads = mine, True
            if not mine.leads:
                self._sleep(mine)
            if mine.leads:
                self._lead()
        finally:
            mine.runner = None  # it refers to this turn: avoid a cycle

    def close(self) -> None:
        """Close the connection. The next leader opens a new one."""
        caller = runner()
        try:
            self.pause(caller)
        finally:
            self.resume(caller)

    def pause(self, caller: Runner | None, seconds: float = threading.TIMEOUT_MAX) -> None:
        """Close the connection, and let nobody write until `resume` is called.

        Do nothing if no turn comes within so many seconds.
        """
        mine = _Turn([], caller, pauses=True)
        if not self._lock.acquire(timeout=seconds):
            return
        try:
            self._queue.append(mine)
            if self._leader is None:
                self._leader, mine.leads = mine, True
        finally:
            self._lock.release()
        if not mine.leads:
            self._sleep(mine, time.monotonic() + seconds)
        if not mine.leads:
            return
        with self._lock:
            self._queue.remove(mine)
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def resume(self, caller: Runner | None) -> None:
        """Let others write again, if `pause` of this caller has kept them from it."""
        leader = self._leader
        if isinstance(leader, _Turn) and leader.pauses and leader.runner is caller:
            self._leave(leader)
            leader.runner = None  # as above

    def _sleep(self, mine: _Turn, give_up: float = inf) -> None:
        """Wait for the turn until it is done, has to lead, or the time is over."""
        try:
            left = give_up - time.monotonic()
            while not mine.wake.acquire(timeout=min(LOOK_EVERY, max(0.0, left))):
                if self._takes_over(mine):
                    return
                left = give_up - time.monotonic()
                if left <= 0:
                    self._leave(mine)
                    return
        except BaseException:
            self._leave(mine)
            raise

    def _leave(self, mine: _Turn) -> None:
        """Remove the turn. Others must not wait for it."""
        with self._lock:
            if mine in self._queue:
                self._queue.remove(mine)
        if mine.leads:
            mine.leads = False
            self._hand_over([])

    def _takes_over(self, mine: _Turn) -> bool:
        """Lead in place of a leader that is gone. Return False if there is one.

        A signal handler may raise an exception between any two lines of the leader. What it had
        taken from the queue may have been committed, or not. It may also have made this caller the
        leader without waking it.
        """
        with self._lock:
            gone = self._leader if self._leader is not mine else None
            leads = gone.runner if isinstance(gone, _Turn) else gone
            if leads is not None and not has_left(leads):
                return False
            if isinstance(gone, _Turn) and gone.pauses and gone in self._queue:
                self._queue.remove(gone)
            if mine in self._queue:  # it leads for itself first, whoever came before it
                self._queue.remove(mine)
                self._queue.appendleft(mine)
            else:
                _fail(mine.jobs, _cut_off())
                _tell(mine.jobs)
            self._leader, mine.leads = mine, True
        self._roll_back()
        return True

    def _lead(self) -> None:
        turns: list[_Turn] = []
        jobs: list[Job] = []
        try:
            with self._lock:
                largest = _LARGEST_BATCH if self._fast else 1
                while self._queue and not self._queue[0].pauses and len(jobs) < largest:
                    turns.append(self._queue.popleft())
                    jobs += turns[-1].jobs
            if jobs:
                self._in_one_transaction(jobs)
        except (ConfigurationError, StoreError) as error:
            _fail(jobs, error)
        except BaseException:
            _fail(jobs, _cut_off())
            self._roll_back()
            raise
        finally:
            self._hand_over(turns)
            _tell(jobs)

    def _hand_over(self, served: list[_Turn]) -> None:
        """Wake the callers that were served, and make the first one in the queue the leader."""
        with self._lock:
            following = self._queue[0] if self._queue else None
            self._leader = following
            for turn in served:
                turn.leads = False
                turn.awaken()
            if following is not None:
                following.leads = True
                following.awaken()

    def _open(self) -> Connection:
        if self.connection is not None and self.connection.has_moved():
            connection, self.connection = self.connection, None
            connection.close()
        if self.connection is None:
            connection = self._connect()
            connection.execute("PRAGMA busy_timeout = 0")
            self.connection = connection
        return self.connection

    def _in_one_transaction(self, jobs: list[Job]) -> None:
        connection = self._open()
        try:
            together = plain(jobs) if len(jobs) > 1 else []
            if len(together) == 1 and len(together[0].jobs) == len(jobs):
                write = together[0].write
                at_once = lambda: write(connection, jobs, self._clock())  # noqa: E731 - each try has its own time
                if when_unlocked(at_once, self._busy_timeout):
                    return  # one statement is a transaction by itself
                together = []
            self._one_by_one(connection, jobs, together)
        except sqlite3.Error as error:
            explained = self._explain(error)
            if self._roll_back():
                explained.happened = False
            raise explained from error

    def _one_by_one(
        self, connection: sqlite3.Connection, jobs: list[Job], together: list[Set]
    ) -> None:
        """Run all jobs in one transaction, one by one except for those in `together`."""
        when_unlocked(partial(connection.execute, "BEGIN IMMEDIATE"), self._busy_timeout)
        now = self._clock()
        done = {job for write, some in together if write(connection, some, now) for job in some}
        for job in jobs:
            if job in done:
                continue
            try:
                job.value = job.work(connection, now)
            except OncekeyError as error:  # about this record alone, which was not changed
                job.error = error
            except UNFIT as error:
                job.error = unfit(error)
        connection.execute("COMMIT")

    def _roll_back(self) -> bool:
        """Roll back. Return whether the transaction is certainly undone.

        Afterwards the connection is usable, or it is closed and the next leader opens a new one.
        """
        connection = self.connection
        if connection is None or not connection.in_transaction:
            return False
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.connection = None  # it is in an unknown state
            connection.close()
            return False
        return True


def _cut_off() -> StoreError:
    msg = "the SQLite transaction was cut off, and nobody knows whether it was committed"
    return StoreError(msg, happened=None)


def _fail(jobs: list[Job], error: ConfigurationError | StoreError) -> None:
    for job in jobs:
        job.value, job.error = None, copy(error)  # a copy for each caller that raises it


def _tell(jobs: list[Job]) -> None:
    """Resolve the futures of the jobs. Wake each loop only once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        if job.future is not None:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(tell_here, done)
        except RuntimeError:  # the loop is closed, and its tasks with it
            continue


def tell_here(jobs: list[Job]) -> None:
    """Resolve the futures of the jobs, which belong to the running loop."""
    for job in jobs:
        assert job.future is not None  # noqa: S101 - they were chosen by it
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)


# Many writes in one statement: claims of new keys, or settles of owners.
#
# Most writes are one of these, and neither needs to read the record first. One statement leaves the
# interpreter to other threads until everything is on the disk. If one of the writes turns out to be
# something else, each job is run by itself: to repeat one that was written does no harm.


LARGEST: Final = 64
"""The largest number of records in one statement."""
_STEP: Final = 8


class Set(NamedTuple):
    """Jobs that one statement can write.

    `write` runs it, and returns whether all of them were written and have their values.
    """

    write: Callable[[sqlite3.Connection, list[Job], int], bool]
    jobs: list[Job]


def plain(jobs: list[Job]) -> list[Set]:
    """Return the jobs that can be written together, as sets for one statement each.

    Two jobs about the same record must keep their order, so they are left to run one by one.
    """
    named = Counter([(job.ask.scope, job.ask.key) for job in jobs if job.ask is not None])
    claims: list[Job] = []
    ends: list[Job] = []
    for job in jobs:
        ask = job.ask
        if job.plain and ask is not None and named[ask.scope, ask.key] == 1:
            (claims if type(ask) is Claim else ends).append(job)
    return [
        Set(write, some[start : start + LARGEST])
        for write, some in ((_claim, claims), (_settle, ends))
        for start in range(0, len(some), LARGEST)
    ]


def padded(number: int) -> int:
    """Return the number of records in the statement for so many jobs.

    It is rounded up, so that few different statements have to be prepared.
    """
    return number if number < _STEP else -(-number // _STEP) * _STEP


def _claim(connection: sqlite3.Connection, jobs: list[Job], now: int) -> bool:
    values: list[object] = []
    row: tuple[object, ...] = ()
    for job in jobs:
        ask: Any = job.ask
        record, job.value = machine.claim(None, ask, now)
        row = file.new_row(record, ask)
        values += row
    size = padded(len(jobs))
    values += row * (size - len(jobs))  # the same row again, which is ignored
    return _written(connection, file.insert_many(size), values) == len(jobs)


def _settle(connection: sqlite3.Connection, jobs: list[Job], now: int) -> bool:
    asks: list[Any] = []
    for job in jobs:
        asks.append(job.ask)
        job.value = Verdict.DONE
    size = padded(len(jobs))
    values = file.settled_many(asks, now, size)
    return _written(connection, file.settle_many(size), values) == len(jobs)


def _written(connection: sqlite3.Connection, statement: str, values: list[object]) -> int:
    try:
        return connection.execute(statement, values).rowcount
    except file.UNFIT:  # nothing was written; run by itself, the job at fault gets the error
        return 0
