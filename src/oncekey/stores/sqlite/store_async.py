"""The SQLite store for coroutines.

A duplicate is read on the loop, which takes microseconds. Writes are queued with those of blocking
callers, and one thread commits them for all loops of the process, one batch after another. So
`store.py` is not the same code without `await`, and both are written by hand.
"""

from __future__ import annotations

import asyncio
import threading
from queue import SimpleQueue
from typing import Any, Final, cast

from oncekey.compat import renew_after_fork, running_loop
from oncekey.core import machine
from oncekey.core.requests import (
    Answer,
    Claim,
    Forget,
    Note,
    Release,
    Renew,
    Resolve,
    Settle,
    Verdict,
)
from oncekey.observe.logger import logger
from oncekey.stores.adapters import Threaded
from oncekey.stores.sqlite.store import A, R, SQLiteStore, Transition
from oncekey.stores.sqlite.writer import Job, tell_here

_APART: Final = 64
"""How many claims are read one by one before trying again to read those of one turn together."""


class AsyncSQLiteStore(Threaded):
    """A store in one file, for any number of event loops."""

    blocking: SQLiteStore

    def __init__(self, store: SQLiteStore) -> None:
        """Share the connections and the writer of `store`."""
        super().__init__(store)
        self._leader = _Leader(store)

    async def claim(self, ask: Claim, /) -> Answer:
        """Grant the record to the caller, or answer why not. Write only if something changes."""
        if not self._leader.crowded():
            asked = self.blocking.read_claim(ask)
            return await self._leader.hand(asked) if isinstance(asked, Job) else asked
        job = self.blocking.job(machine.claim, ask, plain=True)
        job.unread = True
        answer: Answer = await self._leader.hand(job)
        return answer

    async def renew(self, ask: Renew, /) -> Verdict:
        """Extend the owner's lease."""
        return await self._write(machine.renew, ask)

    async def note(self, ask: Note, /) -> Verdict:
        """Store the owner's notes."""
        return await self._write(machine.note, ask)

    async def settle(self, ask: Settle, /) -> Verdict:
        """Store the owner's answer."""
        job = self.blocking.job(machine.settle, ask, plain=True)
        verdict: Verdict = await self._leader.hand(job)
        return verdict

    async def release(self, ask: Release, /) -> Verdict:
        """Release the owner's claim."""
        return await self._write(machine.release, ask)

    async def resolve(self, ask: Resolve, /) -> Verdict:
        """End a held record."""
        if ask.audit:
            return cast(
                "Verdict", await self._leader.hand(self.blocking.job_by_hand(machine.resolve, ask))
            )
        return await self._write(machine.resolve, ask)

    async def forget(self, ask: Forget, /) -> Verdict:
        """Remove the record."""
        if ask.audit:
            return cast(
                "Verdict", await self._leader.hand(self.blocking.job_by_hand(machine.forget, ask))
            )
        return await self._write(machine.forget, ask)

    async def aclose(self) -> None:
        """End the thread and close the file. The next use starts and opens them again."""
        self._leader.stop()
        await super().aclose()

    async def _write(self, change: Transition[R, A], ask: R) -> A:
        answer: A = await self._leader.hand(self.blocking.job(change, ask))
        return answer


class _Leader:
    """The thread that commits for coroutines, everything that was queued since its last commit."""

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self._reset()
        renew_after_fork(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[list[Job] | None] = SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        self._thread: threading.Thread | None = None
        self._apart = 0

    def crowded(self) -> bool:
        """Return whether to read the claims of one turn of the loop together.

        This is tried now and then. A single claim is read faster alone, and at once.
        """
        self._apart -= 1
        return self._apart < 0 and self._store.fast

    def hand(self, job: Job) -> asyncio.Future[Any]:
        """Queue the job and return its future. The jobs of one turn of a loop are queued together.

        If the first job were passed on at once, the thread would take it alone, and the loop would
        have to wait for the thread before it could run the next task.
        """
        loop = running_loop()
        future = job.future = loop.create_future()
        gathered = self._gathered.get(loop)
        if gathered is not None:
            gathered.append(job)
            return future
        for other in [other for other in self._gathered if other.is_closed()]:
            self._gathered.pop(other, None)
        self._gathered[loop] = [job]
        loop.call_soon(self._pass_on, loop)
        return future

    def _pass_on(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs = self._gathered.pop(loop, None)
        if jobs is None:
            return  # queued by the parent process, before the fork
        claims = [job for job in jobs if job.unread]
        if claims:
            if len(claims) == 1:
                self._apart = _APART
            unanswered = set(self._store.read_claims(claims))
            tell_here([job for job in claims if job not in unanswered])
            jobs = [job for job in jobs if not job.unread or job in unanswered]
        if not jobs:
            return
        with self._lock:
            if self._thread is None:
                self._jobs = SimpleQueue()
                self._thread = threading.Thread(
                    target=self._run, args=(self._jobs,), name="oncekey-sqlite", daemon=True
                )
                self._thread.start()
            self._jobs.put(jobs)

    def stop(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            self._jobs.put(None)
        if thread is not None:
            thread.join()

    def after_fork(self) -> None:
        self._reset()

    def _run(self, handed: SimpleQueue[list[Job] | None]) -> None:
        goes_on = True
        while goes_on:
            jobs: list[Job] = []
            while goes_on and not (jobs and handed.empty()):
                more = handed.get()
                goes_on = more is not None
                jobs += more or []
            for part in [jobs] if self._store.fast else [[job] for job in jobs]:
                try:
                    self._store.writer.commit(part)
                except Exception:  # noqa: BLE001 - who waits was told, and others come after it
                    logger.exception("a commit for coroutines failed")
