"""Records in one SQLite file, shared by any number of threads and processes of one machine.

Each verb applies one rule of the machine to one record of the file. This file is written by hand,
and not generated from `store_async.py`: here every caller may commit, there one thread commits.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from oncekey.compat import leave_alone, renew_after_fork
from oncekey.core import machine
from oncekey.core.record import Record
from oncekey.core.requests import (
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
from oncekey.errors import ConfigurationError, OncekeyError
from oncekey.policy import Duration, seconds
from oncekey.stores.base import checked_fast
from oncekey.stores.sqlite import statements as file
from oncekey.stores.sqlite import writer as sets
from oncekey.stores.sqlite.schema import connect
from oncekey.stores.sqlite.writer import Job, Writer

if TYPE_CHECKING:
    from oncekey.stores.sqlite.store_async import AsyncSQLiteStore


R = TypeVar("R", bound=Request)
A = TypeVar("A")

Transition = Callable[[Record | None, R, int], tuple[Record | None, A]]


def swap(
    change: Transition[R, A], ask: R, clock: Callable[[], int], connection: sqlite3.Connection
) -> A | None:
    """The answer, if nobody else changed the record between our reading and our writing.

    The one statement that writes is a transaction by itself, and writes nothing unless the
    row is still what was read: a BEGIN and its COMMIT are spared.
    """
    place = (ask.scope or "", ask.key)
    row = connection.execute(file.SELECT_ONE, place).fetchone()
    before = None if row is None else file.from_row(row)
    after, answer = change(before, ask, clock())
    if after is before:
        return answer
    if before is None:
        written = connection.execute(file.INSERT, _first(after, ask))
    elif after is None:
        written = connection.execute(file.DELETE_SAME, (*place, *file.stamp(before)))
    else:
        values = (*file.changed(after, ask), *place, *file.stamp(before))
        afresh = after.created != before.created
        statement = file.RESTART_SAME if afresh else file.UPDATE_SAME
        written = connection.execute(statement, values)
    return answer if written.rowcount else None


def apply(change: Transition[R, A], ask: R, connection: sqlite3.Connection, now: int) -> A:
    """The answer, inside a transaction that lets nobody else write."""
    place = (ask.scope or "", ask.key)
    row = connection.execute(file.SELECT_ONE, place).fetchone()
    before = None if row is None else file.from_row(row)
    after, answer = change(before, ask, now)
    if after is before:
        return answer
    if before is None:
        connection.execute(file.INSERT, _first(after, ask))
    elif after is None:
        connection.execute(file.DELETE, place)
    else:
        statement = file.RESTART if after.created != before.created else file.UPDATE
        connection.execute(statement, (*file.changed(after, ask), *place))
    return answer


def _first(record: Record | None, ask: Request) -> tuple[object, ...]:
    """What INSERT needs: only a claim makes a record where there was none."""
    assert record is not None  # noqa: S101 - see above
    return file.new_row(record, cast("Claim", ask).ttl)


# Records in one SQLite file, shared by any number of threads and processes of one machine.
#
# Reads go past each other. Writes of one process share a writer: whoever gets the lock commits
# what everybody has queued by then in one transaction, so that sixteen callers pay for one fsync.


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
        fast: bool = True,
    ) -> None:
        """The file is opened, and created, at first use.

        `NORMAL` survives a crash of the process but may lose the last commits at a power cut.
        Without `fast` every write is a transaction of its own, instead of sharing one with others.
        """
        if str(path) in ("", ":memory:"):
            msg = "SQLiteStore needs a file that processes can share; use memory:// without one"
            raise ConfigurationError(msg)
        if synchronous not in ("FULL", "NORMAL"):
            msg = f"synchronous must be FULL or NORMAL, but it is {synchronous!r}"
            raise ConfigurationError(msg)
        self.fast = checked_fast(fast)
        self.path = Path(path)
        self.file = self.path.absolute()
        """The same file, also after the process has changed its folder."""
        self._connect = partial(
            connect,
            self.file,
            synchronous=synchronous,
            busy_timeout=seconds(busy_timeout, "busy_timeout"),
        )
        self._clock = clock or (lambda: time.time_ns() // 1000)
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self._read_lock = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self.writer = Writer(
            self._connect, lambda error: file.explain(error, self.path), self._clock, fast=self.fast
        )

    # The verbs

    def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record. A claim that changes nothing writes nothing."""
        asked = self._alone(machine.claim, ask) or self.read_claim(ask)
        return cast("Answer", self._commit(asked)) if isinstance(asked, Job) else asked

    def read_claim(self, ask: Claim) -> Answer | Job:
        """The answer to a claim that changes nothing, or the job that it takes to tell."""
        before = self._read(ask.scope, ask.key)
        if before is not None:
            after, answer = machine.claim(before, ask, self._clock())
            if after is before:
                return answer
        return self.job(machine.claim, ask, plain=before is None)

    def read_claims(self, jobs: list[Job]) -> list[Job]:
        """The same for many: those that it takes a write to answer; the others have theirs."""
        places = [(job.ask.scope or "", job.ask.key) for job in jobs if job.ask is not None]
        try:
            found = {(row[0], row[1]): row for row in self._rows_at(places)}
        except OncekeyError as error:
            for job in jobs:
                job.error = copy(error)
            return []
        except file.UNFIT:  # whose it is will be seen
            return jobs
        now = self._clock()
        return [
            job
            for job, place in zip(jobs, places, strict=True)
            if place not in found or not _answered(job, found[place], now)
        ]

    def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return self._write(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return self._write(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        if self.fast and self.writer.alone(partial(self._settle, ask)):
            return Verdict.DONE
        return self._write(machine.settle, ask, plain=True)

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
            then = now - grace
            return connection.execute(file.PURGE, (then, then, limit)).rowcount

        # Most of the time nothing has expired; looking costs no commit.
        then = self._clock() - grace
        if not self._rows(file.ANY_EXPIRED, then, then):
            return 0
        return cast("int", self._commit(Job(work)))

    def close(self) -> None:
        """The file is closed. The next use opens it again."""
        self.writer.close()
        with self._read_lock:
            reader, self._reader = self._reader, None
            if reader is not None:
                reader.close()

    def __del__(self) -> None:
        """Who is not needed any more has closed the file. Python 3.13 would complain else."""
        made = vars(self)  # little, where an argument was refused
        writer: Writer | None = made.get("writer")
        for connection in (made.get("_reader"), writer and writer.connection):
            if connection is not None:
                connection.close()

    def as_async(self) -> AsyncSQLiteStore:
        """The same store for coroutines: they share its writer, and a thread leads for them."""
        from oncekey.stores.sqlite.store_async import AsyncSQLiteStore

        return AsyncSQLiteStore(self)

    def after_fork(self) -> None:
        """The parent's connections are never touched again, not even to close them."""
        leave_alone(self._reader, self.writer.connection)
        self._reset()

    # Reading

    def _read(self, scope: str | None, key: str) -> Record | None:
        rows = self._rows(file.SELECT_ONE, scope or "", key)
        return file.from_row(rows[0]) if rows else None

    def _rows_at(self, places: list[tuple[str, str]]) -> Iterator[Any]:
        """The rows of these places, in few statements."""
        for start in range(0, len(places), sets.LARGEST):
            some = places[start : start + sets.LARGEST]
            nowhere = [0, 0] * (sets.padded(len(some)) - len(some))
            words = [word for place in some for word in place]
            yield from self._rows(file.select_many(sets.padded(len(some))), *words, *nowhere)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._read_lock:
            try:
                if self._reader is None:
                    self._reader = self._connect()
                return self._reader.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise file.explain(error, self.path) from error

    # Writing

    def _write(self, change: Transition[R, A], ask: R, *, plain: bool = False) -> A:
        """The answer of one rule of the machine, applied to one record."""
        answer = self._alone(change, ask)
        if answer is None:
            answer = self._commit(self.job(change, ask, plain=plain))
        return answer

    def _settle(self, ask: Settle, connection: sqlite3.Connection) -> bool | None:
        """Whether the owner has settled a record that was not; one statement, as in `swap`."""
        now = self._clock()
        return connection.execute(file.SETTLE, file.settled(ask, now)).rowcount == 1

    def _alone(self, change: Transition[R, A], ask: R) -> A | None:
        """The same, where nobody else writes just now."""
        if not self.fast:
            return None
        return self.writer.alone(partial(swap, change, ask, self._clock))

    def transition(self, change: Transition[R, A], ask: R) -> Callable[..., A]:
        """The work of a job that applies one rule of the machine to one record."""
        return partial(apply, change, ask)

    def job(self, change: Transition[R, A], ask: R, *, plain: bool = False) -> Job:
        """The job that applies one rule of the machine to one record."""
        return Job(self.transition(change, ask), ask=ask, plain=plain)

    def _commit(self, job: Job) -> Any:
        self.writer.commit([job])
        if job.error is not None:
            raise job.error
        return job.value


def _answered(job: Job, row: Any, now: int) -> bool:
    """Whether the claim changes nothing, and has its answer, or cannot have one."""
    try:
        before = file.from_row(row)
    except OncekeyError as error:
        job.error = error
        return True
    after, answer = machine.claim(before, cast("Claim", job.ask), now)
    job.plain = False
    job.value = answer
    return after is before
