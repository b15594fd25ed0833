"""The SQLite store for coroutines.

A duplicate is read on the loop, which takes microseconds. Writes are queued beside those of the
blocking callers, and one thread commits for all loops of the process, one batch after another.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from oncekey import machine
from oncekey.fork import renew_after_fork
from oncekey.stores.adapt import Threaded
from oncekey.stores.sqlite import A, R, SQLiteStore, Transition
from oncekey.stores.sqlite_writer import Job
from oncekey.verbs import Answer, Claim, Forget, Note, Release, Renew, Resolve, Settle, Verdict

_log = logging.getLogger("oncekey")


class AsyncSQLiteStore(Threaded):
    """A store in one file, for any number of event loops."""

    blocking: SQLiteStore

    def __init__(self, store: SQLiteStore) -> None:
        """The coroutines share the writer of `store`."""
        super().__init__(store)
        self._leader = _Leader(store)

    async def claim(self, ask: Claim, /) -> Answer:
        """One asker is granted the record. A claim that changes nothing writes nothing."""
        asked = self.blocking.read_claim(ask)
        return await self._done(asked) if isinstance(asked, Job) else asked

    async def renew(self, ask: Renew, /) -> Verdict:
        """The owner's lease is moved."""
        return await self._write(machine.renew, ask)

    async def note(self, ask: Note, /) -> Verdict:
        """The owner's notes are kept."""
        return await self._write(machine.note, ask)

    async def settle(self, ask: Settle, /) -> Verdict:
        """The owner's answer is kept."""
        return await self._write(machine.settle, ask, plain=True)

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

    async def _write(self, change: Transition[R, A], ask: R, *, plain: bool = False) -> A:
        answer: A = await self._done(self.blocking.job(change, ask, plain=plain))
        return answer

    async def _done(self, job: Job) -> Any:  # noqa: ANN401 - the answer of the verb
        job.future = asyncio.get_running_loop().create_future()
        self._leader.hand(job)
        return await job.future


class _Leader:
    """The thread that commits for coroutines: whatever they handed over since it last looked."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._jobs: list[Job] = []
        self._gathered: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        self._thread: threading.Thread | None = None

    def hand(self, job: Job) -> None:
        """Everything that is handed over in one turn of a loop goes together.

        Called at once the thread would take the first job alone, and the loop, which wants to read
        for the next one, would have to wait for it.
        """
        assert job.future is not None  # noqa: S101 - whoever waits made it
        loop = job.future.get_loop()
        gathered = self._gathered.get(loop)
        if gathered is not None:
            gathered.append(job)
            return
        for other in [other for other in self._gathered if other.is_closed()]:
            self._gathered.pop(other, None)
        self._gathered[loop] = [job]
        loop.call_soon(self._pass_on, loop)

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._gathered.pop(loop, None)
        if jobs is None:
            return  # of the parent of this process
        with self._changed:
            self._jobs += jobs
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
            for part in [jobs] if self._store.fast else [[job] for job in jobs]:
                try:
                    self._store.writer.commit(part)
                except Exception:  # noqa: BLE001 - who waits was told, and others come after it
                    _log.exception("a commit for coroutines failed")
