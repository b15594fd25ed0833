"""The writer of a SQLite file: what callers queue is committed together.

Whoever gets the lock leads: it commits what everybody has queued by then in one transaction.
The others find their job done when the lock comes to them. No thread is needed for that, and a
single caller pays for nothing but its own commit.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from copy import copy
from typing import Any, Final

from oncekey.errors import ConfigurationError, OncekeyError, StoreError

_LARGEST_BATCH: Final = 512

Explain = Callable[[sqlite3.Error], ConfigurationError | StoreError]


class Job:
    """One write that waits for a transaction, and what came of it."""

    __slots__ = ("done", "error", "future", "value", "work")

    def __init__(
        self,
        work: Callable[[sqlite3.Connection, int], Any],
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        """`work` runs inside the transaction; `future` is told on its own loop."""
        self.work = work
        self.future = future
        self.value: Any = None
        self.error: OncekeyError | None = None
        self.done = False


class Writer:
    """The connection that writes, and the jobs that wait for it."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        explain: Explain,
        clock: Callable[[], int],
    ) -> None:
        """The connection is opened by the first who leads."""
        self._connect = connect
        self._explain = explain
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[Job] = deque()
        self.connection: sqlite3.Connection | None = None

    def commit(self, job: Job) -> Any:  # noqa: ANN401 - whatever the work returns
        """The job is committed, together with whatever else is queued; its value, or its error."""
        self._queue.append(job)
        with self._lock:
            while not job.done:  # whoever held the lock before us may have done it
                self._lead()
        if job.error is not None:
            raise job.error
        return job.value

    def enqueue(self, job: Job) -> None:
        """The job is committed by whoever leads next; its future hears of it."""
        self._queue.append(job)

    def commit_queued(self) -> bool:
        """Commit what is queued, if anything is; whether there was something."""
        with self._lock:
            return self._lead()

    def close(self) -> None:
        """The connection is closed. The next job opens a new one."""
        with self._lock:
            connection, self.connection = self.connection, None
            if connection is not None:
                connection.close()

    def _lead(self) -> bool:
        jobs: list[Job] = []
        while self._queue and len(jobs) < _LARGEST_BATCH:
            jobs.append(self._queue.popleft())
        if not jobs:
            return False
        try:
            self._in_one_transaction(jobs)
        except (ConfigurationError, StoreError) as error:
            _fail(jobs, error)
        except BaseException:
            # The thread that leads is cut off: those who follow must not wait for it for ever.
            msg = "the SQLite transaction was cut off, and nobody knows whether it was committed"
            _fail(jobs, StoreError(msg, happened=None))
            self._roll_back()
            raise
        finally:
            _tell(jobs)
        return True

    def _in_one_transaction(self, jobs: list[Job]) -> None:
        if self.connection is None:
            self.connection = self._connect()
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            now = self._clock()
            for job in jobs:
                try:
                    job.value = job.work(connection, now)
                except OncekeyError as error:  # about this record alone, before it was changed
                    job.error = error
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            explained = self._explain(error)
            if self._roll_back() and isinstance(explained, StoreError):
                explained.happened = False
            raise explained from error

    def _roll_back(self) -> bool:
        """Whether what was begun is surely undone; the connection is fit for the next."""
        connection = self.connection
        if connection is None or not connection.in_transaction:
            return False
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.connection = None  # it cannot be trusted any more
            return False
        return True


def _fail(jobs: list[Job], error: ConfigurationError | StoreError) -> None:
    for job in jobs:
        job.value, job.error = None, copy(error)  # one for each who raises it


def _tell(jobs: list[Job]) -> None:
    """The jobs are done; each loop that waits for some of them is woken once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
    for job in jobs:
        job.done = True
        if job.future is not None:
            by_loop.setdefault(job.future.get_loop(), []).append(job)
    for loop, done in by_loop.items():
        try:
            loop.call_soon_threadsafe(_set_futures, done)
        except RuntimeError:  # that loop is closed: nobody waits there any more
            continue


def _set_futures(jobs: list[Job]) -> None:
    for job in jobs:
        assert job.future is not None  # noqa: S101 - they were chosen by it
        if job.future.done():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.value)
