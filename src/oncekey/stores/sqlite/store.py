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

from oncekey.compat import Runner, leave_alone, pause_for_fork
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
from oncekey.stores.activity import Activity, Counts, activity_of, places_at
from oncekey.stores.base import checked_fast
from oncekey.stores.sqlite import statements as file
from oncekey.stores.sqlite import writer as sets
from oncekey.stores.sqlite.schema import Connection, connect
from oncekey.stores.sqlite.writer import Job, Writer

if TYPE_CHECKING:
    from oncekey.stores.sqlite.store_async import AsyncSQLiteStore


R = TypeVar("R", bound=Request)
ByHand = TypeVar("ByHand", Resolve, Forget)
A = TypeVar("A")

Transition = Callable[[Record | None, R, int], tuple[Record | None, A]]


def swap(
    change: Transition[R, A], ask: R, clock: Callable[[], int], connection: sqlite3.Connection
) -> A | None:
    """Return the answer, or None if the record was changed between reading and writing.

    The statement that writes is a transaction by itself, and writes nothing unless the row is still
    the one that was read. This saves BEGIN and COMMIT.
    """
    place = (ask.scope or "", ask.key)
    row = connection.execute(file.SELECT_ONE, place).fetchone()
    before = None if row is None else file.from_row(row)
    after, answer = change(before, ask, clock())
    if after is before:
        return answer
    if before is None:
        written = connection.execute(file.INSERT, file.new_row(after, ask))
    elif after is None:
        written = connection.execute(file.DELETE_SAME, (*place, *file.stamp(before)))
    else:
        values = (*file.changed(after, ask), *place, *file.stamp(before))
        afresh = after.created != before.created
        statement = file.RESTART_SAME if afresh else file.UPDATE_SAME
        written = connection.execute(statement, values)
    return answer if written.rowcount else None


def apply(change: Transition[R, A], ask: R, connection: sqlite3.Connection, now: int) -> A:
    """Apply the rule inside of a transaction that locks out other writers. Return the answer."""
    place = (ask.scope or "", ask.key)
    row = connection.execute(file.SELECT_ONE, place).fetchone()
    before = None if row is None else file.from_row(row)
    after, answer = change(before, ask, now)
    if after is before:
        return answer
    if before is None:
        connection.execute(file.INSERT, file.new_row(after, ask))
    elif after is None:
        connection.execute(file.DELETE, place)
    else:
        statement = file.RESTART if after.created != before.created else file.UPDATE
        connection.execute(statement, (*file.changed(after, ask), *place))
    return answer


def apply_by_hand(
    change: Transition[ByHand, Verdict], ask: ByHand, connection: sqlite3.Connection, now: int
) -> Verdict:
    """Apply the rule. Add the entry of the request to the audit trail if a record changed."""
    before = connection.total_changes
    verdict = apply(change, ask, connection, now)
    if connection.total_changes != before:
        add_entry(ask.audit, connection, now)
    return verdict


def restore_row(record: Record, connection: sqlite3.Connection, now: int) -> bool:
    """Insert the record unless there is a living one. Return whether it was inserted."""
    row = connection.execute(file.SELECT_ONE, (record.scope or "", record.key)).fetchone()
    there = row is not None and not machine.expired(file.from_row(row), now)
    if there or machine.expired(record, now):
        return False
    connection.execute(file.RESTORE, (*file.to_row(record), record.expires))
    return True


def add_entry(entry: bytes, connection: sqlite3.Connection, now: int) -> None:
    """Add the entry to the audit trail, and remove the oldest ones."""
    connection.execute(file.AUDIT, (now, entry))
    connection.execute(file.TRIM_AUDIT)


def add_counts(counts: Counts, ago: int, connection: sqlite3.Connection, now: int) -> None:
    """Add the counts to the slots of the moment that many microseconds ago."""
    rows = [(*place, *counts) for place in places_at(now - ago, now)]
    connection.executemany(file.ADD_ACTIVITY, rows)


# Reads run concurrently. Writes of one process share a writer: the caller that gets the lock
# commits everything that is queued by then in one transaction, so that sixteen callers pay for one
# fsync.


class SQLiteStore:
    """A store in one file. Every commit is on the disk before it is answered."""

    remote = False
    sends_once = True

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        busy_timeout: Duration = "10s",
        mode: int = 0o600,
        clock: Callable[[], int] | None = None,
        fast: bool = True,
    ) -> None:
        """Check the options. The file is opened, or created, at first use.

        A file that is created has the permissions `mode`: only its owner reads what was returned.
        `NORMAL` survives a crash of the process but may lose the last commits at a power cut.
        Without `fast` every write is a transaction of its own, instead of sharing one with others.
        """
        if str(path) in ("", ":memory:"):
            msg = "SQLiteStore needs a file that processes can share; use memory:// without one"
            raise ConfigurationError(msg)
        if synchronous not in ("FULL", "NORMAL"):
            msg = f"synchronous must be FULL or NORMAL, but it is {synchronous!r}"
            raise ConfigurationError(msg)
        if isinstance(mode, bool) or not isinstance(mode, int) or mode & ~0o777 or not mode & 0o600:
            msg = f"mode must be permissions such as 0o600 or 0o660, but it is {mode!r}"
            raise ConfigurationError(msg)
        self.fast = checked_fast(fast)
        self.mode = mode
        self.synchronous = synchronous
        self.path = Path(path)
        self.file = self.path.absolute()
        """The absolute path, which stays right when the process changes its directory."""
        self._busy_timeout = seconds(busy_timeout, "busy_timeout")
        self._connect = partial(
            connect, self.file, synchronous=synchronous, busy_timeout=self._busy_timeout, mode=mode
        )
        self.clock = clock or (lambda: time.time_ns() // 1000)
        self._reset()
        pause_for_fork(self)

    def _reset(self) -> None:
        self._read_lock = threading.Lock()
        self._forker: Runner | None = None
        self._reader: Connection | None = None
        self.writer = Writer(
            self._connect,
            lambda error: file.explain(error, self.path),
            self.clock,
            busy_timeout=self._busy_timeout,
            fast=self.fast,
        )

    # The verbs

    def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not. Write only if something changes."""
        swapped = self.writer.alone(partial(swap, machine.claim, ask, self.clock))
        asked = swapped or self.read_claim(ask)
        return cast("Answer", self._commit(asked)) if isinstance(asked, Job) else asked

    def read_claim(self, ask: Claim) -> Answer | Job:
        """Return the answer to a claim that changes nothing, or else the job that writes it."""
        before = self._read(ask.scope, ask.key)
        if before is not None:
            after, answer = machine.claim(before, ask, self.clock())
            if after is before:
                return answer
        return self.job(machine.claim, ask, plain=before is None)

    def read_claims(self, jobs: list[Job]) -> list[Job]:
        """Answer the claims that change nothing. Return the jobs that need a write."""
        places = [(job.ask.scope or "", job.ask.key) for job in jobs if job.ask is not None]
        try:
            found = {(row[0], row[1]): row for row in self._rows_at(places)}
        except OncekeyError as error:
            for job in jobs:
                job.error = copy(error)
            return []
        except file.UNFIT:  # the writer will find out which job is at fault
            return jobs
        now = self.clock()
        return [
            job
            for job, place in zip(jobs, places, strict=True)
            if place not in found or not _answered(job, found[place], now)
        ]

    def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        return self._write(machine.renew, ask)

    def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        return self._write(machine.note, ask)

    def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        if self.writer.alone(partial(self._settle, ask)):
            return Verdict.DONE
        return self._write(machine.settle, ask, plain=True)

    def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        return self._write(machine.release, ask)

    def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        if ask.audit:
            return cast("Verdict", self._commit(self.job_by_hand(machine.resolve, ask)))
        return self._write(machine.resolve, ask)

    def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        if ask.audit:
            return cast("Verdict", self._commit(self.job_by_hand(machine.forget, ask)))
        return self._write(machine.forget, ask)

    def get(self, scope: str | None, key: str, /) -> Record | None:
        """Return the record, or None if there is none or it has expired."""
        record = self._read(scope, key)
        return None if record is None or machine.expired(record, self.clock()) else record

    def scan(self, ask: Scan, /) -> Page:
        """Return a page of the records that have not expired, ordered by scope and key."""
        after = ask.after or ("", "")
        rows = self.rows(
            file.SELECT_PAGE,
            *after,
            self.clock(),
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
        """Remove at most `limit` records that expired `grace` microseconds ago. Return how many."""

        def work(connection: sqlite3.Connection, now: int) -> int:
            then = now - grace
            return connection.execute(file.PURGE, (then, then, limit)).rowcount

        # Most of the time nothing has expired; a read costs no commit.
        then = self.clock() - grace
        if not self.rows(file.ANY_EXPIRED, then, then):
            return 0
        return cast("int", self._commit(Job(work)))

    def restore(self, record: Record, /) -> bool:
        """Keep a record of another store, unless there is one."""
        return cast("bool", self._commit(Job(partial(restore_row, record))))

    def audit(self, entry: bytes, /) -> None:
        """Add an entry to the audit trail."""
        self._commit(Job(partial(add_entry, entry)))

    def audited(self, limit: int, /) -> list[tuple[int, bytes]]:
        """Return the newest entries of the audit trail, each with its time."""
        return self.rows(file.AUDITED, limit)

    def add_activity(self, counts: Counts, ago: int, /) -> None:
        """Add the counts to the slots of that moment."""
        self._commit(Job(partial(add_counts, counts, ago)))

    def activity(self) -> Activity:
        """Return the sums that are kept."""
        return activity_of(self.rows(file.ACTIVITY), self.clock())

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self.writer.close()
        with self._read_lock:
            self._close_reader()

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def __del__(self) -> None:
        """Close the connections. Python 3.13 warns about those that are left open."""
        made = vars(self)  # incomplete, if an argument was refused
        writer: Writer | None = made.get("writer")
        for connection in (made.get("_reader"), writer and writer.connection):
            if connection is not None:
                connection.close()

    def as_async(self) -> AsyncSQLiteStore:
        """Return the store for coroutines, which share its writer by way of one thread."""
        from oncekey.stores.sqlite.store_async import AsyncSQLiteStore

        return AsyncSQLiteStore(self)

    def before_fork(self, forker: Runner, seconds: float) -> None:
        """Close the file, and keep it closed until the fork is over.

        SQLite remembers in the memory of the process which locks it has on a file. A child inherits
        the memory, but not the locks. It would find the file locked for ever, or believe that it
        has a lock, write into a log that the parent has removed, and lose those records.
        """
        give_up = time.monotonic() + seconds
        self.writer.pause(forker, seconds)
        if self._read_lock.acquire(timeout=max(0.0, give_up - time.monotonic())):
            self._forker = forker
            self._close_reader()

    def after_fork_in_parent(self, forker: Runner) -> None:
        """Let others open the file again."""
        self.writer.resume(forker)
        if self._forker is forker:
            self._forker = None
            self._read_lock.release()

    def after_fork(self) -> None:
        """Drop the parent's connections without closing them, if the fork did not wait for them."""
        leave_alone(self._reader, self.writer.connection)
        self._reset()

    # Reading

    def _read(self, scope: str | None, key: str) -> Record | None:
        rows = self.rows(file.SELECT_ONE, scope or "", key)
        return file.from_row(rows[0]) if rows else None

    def _rows_at(self, places: list[tuple[str, str]]) -> Iterator[Any]:
        """Return the rows of these places, with few statements."""
        for start in range(0, len(places), sets.LARGEST):
            some = places[start : start + sets.LARGEST]
            nowhere = [0, 0] * (sets.padded(len(some)) - len(some))
            words = [word for place in some for word in place]
            yield from self.rows(file.select_many(sets.padded(len(some))), *words, *nowhere)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Read with the connection that reads. Return all rows."""
        with self._read_lock:
            try:
                if self._reader is not None and self._reader.has_moved():
                    self._close_reader()
                if self._reader is None:
                    self._reader = self._connect()
                return self._reader.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise file.explain(error, self.path) from error

    # Writing

    def _write(self, change: Transition[R, A], ask: R, *, plain: bool = False) -> A:
        """Apply one rule of the machine to one record. Return its answer."""
        answer = self.writer.alone(partial(swap, change, ask, self.clock))
        if answer is None:
            answer = self._commit(self.job(change, ask, plain=plain))
        return answer

    def _settle(self, ask: Settle, connection: sqlite3.Connection) -> bool | None:
        """Settle a running or held record with one statement. Return whether there was one."""
        now = self.clock()
        return connection.execute(file.SETTLE, file.settled(ask, now)).rowcount == 1

    def transition(self, change: Transition[R, A], ask: R) -> Callable[..., A]:
        """Return a function that applies one rule of the machine to one record."""
        return partial(apply, change, ask)

    def job(self, change: Transition[R, A], ask: R, *, plain: bool = False) -> Job:
        """Return the job that applies one rule of the machine to one record."""
        return Job(self.transition(change, ask), ask=ask, plain=plain)

    def job_by_hand(self, change: Transition[ByHand, Verdict], ask: ByHand) -> Job:
        """Return the job that applies the rule and adds the entry of the request."""
        return Job(partial(apply_by_hand, change, ask), ask=ask)

    def _commit(self, job: Job) -> Any:
        self.writer.commit([job])
        if job.error is not None:
            raise job.error
        return job.value


def _answered(job: Job, row: Any, now: int) -> bool:
    """Answer a claim that changes nothing or cannot be read. Return False if it must write."""
    try:
        before = file.from_row(row)
    except OncekeyError as error:
        job.error = error
        return True
    after, answer = machine.claim(before, cast("Claim", job.ask), now)
    job.plain = False
    job.value = answer
    return after is before
