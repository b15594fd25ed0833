"""The SQLite store for coroutines.

A duplicate is read on the loop, which takes microseconds. Writes are queued beside those of the
blocking callers, and one thread commits for all loops of the process, one batch after another.
"""

from __future__ import annotations

import asyncio
import threading

from oncekey import machine
from oncekey.fork import renew_after_fork
from oncekey.stores.adapt import Threaded
from oncekey.stores.sqlite import A, R, SQLiteStore, Transition
from oncekey.stores.sqlite_writer import Job
from oncekey.verbs import Answer, Claim, Forget, Note, Release, Renew, Resolve, Settle, Verdict


class AsyncSQLiteStore(Threaded):
    """A store in one file, for any number of event loops."""

    blocking: SQLiteStore

    def __init__(self, store: SQLiteStore) -> None:
        """The coroutines share the writer of `store`."""
        super().__init__(store)
        self._leader = _Leader(store)

    async def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record. A claim that changes nothing writes nothing."""
        read = self.blocking.claim_by_reading(ask)
        return await self._write(machine.claim, ask) if read is None else read

    async def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return await self._write(machine.renew, ask)

    async def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return await self._write(machine.note, ask)

    async def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return await self._write(machine.settle, ask)

    async def release(self, ask: Release, /) -> Verdict:
        """The owner's claim is over."""
        return await self._write(machine.release, ask)

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """A held record has ended."""
        return await self._write(machine.resolve, ask)

    async def forget(self, ask: Forget, /) -> Verdict:
        """There is no such record."""
        return await self._write(machine.forget, ask)

    async def aclose(self) -> None:
        """The thread ends and the file is closed. The next use starts and opens them again."""
        self._leader.stop()
        await super().aclose()

    async def _write(self, change: Transition[R, A], ask: R) -> A:
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._leader.hand(Job(self.blocking.transition(change, ask), future))
        return await future


class _Leader:
    """The thread that commits for coroutines: whatever they handed over since it last looked."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._jobs: list[Job] = []
        self._thread: threading.Thread | None = None

    def hand(self, job: Job) -> None:
        with self._changed:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="oncekey-sqlite", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join()

    def after_fork(self) -> None:
        self._reset()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while not self._jobs and self._thread is me:
                    self._changed.wait()
                jobs, self._jobs = self._jobs, []
            if not jobs:
                return
            self._store.writer.commit(jobs)
