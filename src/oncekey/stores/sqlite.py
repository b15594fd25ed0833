"""Records in one SQLite file, shared by any number of threads and processes of one machine.

Reads go past each other. Writes of one process share a writer: whoever gets the lock commits
what everybody has queued by then in one transaction, so that sixteen callers pay for one fsync.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from oncekey import machine
from oncekey.duration import Duration, seconds
from oncekey.errors import ConfigurationError, OncekeyError, StoreError
from oncekey.fork import renew_after_fork
from oncekey.record import Record
from oncekey.stores import sqlite_file as file
from oncekey.verbs import (
    Answer,
    Claim,
    Forget,
    Note,
    Page,
    Release,
    Renew,
    Request,
    Resolve,
    Scan,
    Settle,
    Verdict,
)

if TYPE_CHECKING:
    from oncekey.stores.sqlite_async import AsyncSQLiteStore

R = TypeVar("R", bound=Request)
A = TypeVar("A")
T = TypeVar("T")

Transition = Callable[[Record | None, R, int], tuple[Record | None, A]]
_LARGEST_BATCH: Final = 512


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


class SQLiteStore:
    """A store in one file. Every commit is on the disk before it is answered."""

    remote = False

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        busy_timeout: Duration = "10s",
        clock: Callable[[], int] | None = None,
    ) -> None:
        """The file is opened, and created, at first use.

        `NORMAL` survives a crash of the process but may lose the last commits at a power cut.
        """
        if str(path) in ("", ":memory:"):
            msg = "SQLiteStore needs a file that processes can share; use memory:// without one"
            raise ConfigurationError(msg)
        if synchronous not in ("FULL", "NORMAL"):
            msg = f"synchronous must be FULL or NORMAL, but it is {synchronous!r}"
            raise ConfigurationError(msg)
        self.path = Path(path)
        self._connect = partial(
            file.connect,
            self.path,
            synchronous=synchronous,
            busy_timeout=seconds(busy_timeout, "busy_timeout"),
        )
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._inherited: list[sqlite3.Connection | None] = []
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self._read_lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._queue: deque[Job] = deque()

    # The verbs

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record. A claim that changes nothing writes nothing."""
        read = self.claim_by_reading(ask)
        return self._write(machine.claim, ask) if read is None else read

    def claim_by_reading(self, ask: Claim) -> Answer | None:
        """The answer to a claim that changes nothing; None when it takes a write to tell."""
        before = self._read(ask.scope, ask.key)
        if before is None:
            return None
        after, answer = machine.claim(before, ask, self._clock())
        return answer if after is before else None

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return self._write(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return self._write(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return self._write(machine.settle, ask)

    def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return self._write(machine.release, ask)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return self._write(machine.resolve, ask)

    def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return self._write(machine.forget, ask)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """The living record, if there is one."""
        record = self._read(scope, key)
        return None if record is None or machine.expired(record, self._clock()) else record

    def scan(self, ask: Scan, /) -> Page:
        """Some of the living records, in the order of scope and key."""
        after = ask.after or ("", "")
        rows = self._rows(
            file.SELECT_PAGE,
            *after,
            self._clock(),
            ask.any_scope,
            ask.scope or "",
            ask.status,
            ask.status,
            ask.limit + 1,
        )
        records = [file.from_row(row) for row in rows[: ask.limit]]
        more = len(rows) > ask.limit
        return Page(records, (rows[ask.limit - 1][0], rows[ask.limit - 1][1]) if more else None)

    def purge(self, grace: int, limit: int, /) -> int:
        """At most `limit` records that expired `grace` microseconds ago are gone; how many."""

        def work(connection: sqlite3.Connection, now: int) -> int:
            return connection.execute(file.PURGE, (now - grace, limit)).rowcount

        # Most of the time nothing has expired; looking costs no commit.
        if not self._rows(file.ANY_EXPIRED, self._clock() - grace):
            return 0
        purged: int = self.commit(Job(work))
        return purged

    def close(self) -> None:
        """The file is closed. The next use opens it again."""
        with self._write_lock, self._read_lock:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    connection.close()
            self._reader = self._writer = None

    def as_async(self) -> AsyncSQLiteStore:
        """The same store for coroutines: they share its writer, and a thread leads for them."""
        from oncekey.stores.sqlite_async import AsyncSQLiteStore  # noqa: PLC0415 - it imports us

        return AsyncSQLiteStore(self)

    def after_fork(self) -> None:
        """The parent's connections are never touched again, not even to close them."""
        self._inherited += [self._reader, self._writer]
        self._reset()

    # Reading

    def _read(self, scope: str | None, key: str) -> Record | None:
        rows = self._rows(file.SELECT_ONE, scope or "", key)
        return file.from_row(rows[0]) if rows else None

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._read_lock:
            try:
                if self._reader is None:
                    self._reader = self._connect()
                return self._reader.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise file.explain(error, self.path) from error

    # Writing

    def transition(self, change: Transition[R, A], ask: R) -> Callable[..., A]:
        """The work of a job that applies one rule of the machine to one record."""

        def work(connection: sqlite3.Connection, now: int) -> A:
            place = (ask.scope or "", ask.key)
            row = connection.execute(file.SELECT_ONE, place).fetchone()
            before = None if row is None else file.from_row(row)
            after, answer = change(before, ask, now)
            if after is None and before is not None:
                connection.execute(file.DELETE, place)
            elif after is not None and after is not before:
                connection.execute(file.PUT, file.to_row(after))
            return answer

        return work

    def _write(self, change: Transition[R, A], ask: R) -> A:
        answer: A = self.commit(Job(self.transition(change, ask)))
        return answer

    def commit(self, job: Job) -> Any:  # noqa: ANN401 - whatever the work returns
        """The job is committed, together with whatever else is queued; its value, or its error."""
        self._queue.append(job)
        with self._write_lock:
            while not job.done:  # whoever held the lock before us may have done it
                self._commit_queued()
        if job.error is not None:
            raise job.error
        return job.value

    def enqueue(self, job: Job) -> None:
        """The job is committed by whoever leads next; its future hears of it."""
        self._queue.append(job)

    def commit_queued(self) -> bool:
        """Commit what is queued, if anything is; whether there was something."""
        with self._write_lock:
            return self._commit_queued()

    def _commit_queued(self) -> bool:
        jobs: list[Job] = []
        while self._queue and len(jobs) < _LARGEST_BATCH:
            jobs.append(self._queue.popleft())
        if jobs:
            try:
                self._in_one_transaction(jobs)
            except (StoreError, ConfigurationError) as error:
                for job in jobs:
                    job.value, job.error = None, copy(error)  # one for each who raises it
            _tell(jobs)
        return bool(jobs)

    def _in_one_transaction(self, jobs: list[Job]) -> None:
        if self._writer is None:
            self._writer = self._connect()
        connection = self._writer
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
            raise self._rolled_back(connection, error) from error

    def _rolled_back(
        self, connection: sqlite3.Connection, error: sqlite3.Error
    ) -> StoreError | ConfigurationError:
        """What to tell everybody in a transaction that failed."""
        explained = file.explain(error, self.path)
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                return explained
            if isinstance(explained, StoreError):
                explained.happened = False
        return explained


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
