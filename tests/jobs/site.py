"""A queue with its servers and workers, as one test module sees it."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from oncekey import Once
from tests.faults.matrix.crowd import children_of, state_of
from tests.jobs.queues import Queue
from tests.patience import PATIENCE, until
from tests.servers.redis import RedisServer

ROOT = Path(__file__).parents[2]
_LOOK = 1.0
"""Seconds from one look at the workers to the next."""
_orders = count(1)


class Worker:
    """A worker process, with all that it started, in a group of its own."""

    def __init__(self, words: list[str], environment: dict[str, str], log: Path) -> None:
        self._asked_to_end = False
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                words,
                cwd=ROOT,
                # Whoever is killed leaves its temporary files: let it be among those of the tests.
                env={**os.environ, "TMPDIR": str(log.parent), **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def died(self) -> bool:
        """Whether it has ended, and nobody wanted it to."""
        return not self._asked_to_end and self.process.poll() is not None

    def ask_to_stop(self) -> None:
        self._asked_to_end = True
        self.process.terminate()

    def kill(self) -> None:
        """It is gone, with its children, in the middle of whatever it did."""
        self._asked_to_end = True
        family = children_of(self.process.pid)
        os.killpg(self.process.pid, signal.SIGKILL)
        assert self.process.wait(PATIENCE) == -signal.SIGKILL
        _until_gone(family)

    def stop(self) -> None:
        """It ended, if need be by force."""
        self.ask_to_stop()
        family = children_of(self.process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        _until_gone(family)


def _until_gone(family: list[int]) -> None:
    """Wait for the children of a worker: one that still asks its broker could take a job along."""
    until(lambda: all(state_of(child) in ("", "Z") for child in family))


class Site:
    """The broker, which keeps the ledger too, the store, and the workers."""

    def __init__(self, kind: type[Queue], broker: RedisServer, store: RedisServer, folder: Path):
        self.broker = broker
        self.store = store
        self.log = folder / "workers.log"
        self.ledger: Any = broker.client(db=1, decode_responses=True)
        self.once = Once(store.url)
        self.queue = kind(f"{broker.url[:-1]}2", self.once)
        self.environment = {
            "JOBS_BROKER": self.queue.url,
            "JOBS_LEDGER": f"{broker.url[:-1]}1",
            "JOBS_STORE": store.url,
        }
        self.workers: list[Worker] = []
        for name in ("put", "put_twice", "put_once", "result"):
            setattr(self.queue, name, self._watched(getattr(self.queue, name)))

    def start(self) -> Worker:
        """One more worker process takes jobs."""
        self.workers.append(Worker(self.queue.words(), self.environment, self.log))
        return self.workers[-1]

    @contextlib.contextmanager
    def another(self, *options: str) -> Iterator[Worker]:
        """For a while a worker with options of its own is there too."""
        worker = Worker([*self.queue.words(), *options], self.environment, self.log)
        try:
            yield worker
        finally:
            worker.stop()

    def close(self) -> None:
        for worker in self.workers:  # they take their time, and may take it together
            worker.ask_to_stop()
        for worker in self.workers:
            worker.stop()
        self.queue.close()
        self.once.close()
        self.ledger.close()

    # What a test asks

    def order(self) -> str:
        """An order that no job has been about yet."""
        return f"order-{next(_orders)}"

    def effects(self, order: str) -> list[str]:
        """What was done, each time it was done."""
        found: list[str] = self.ledger.lrange(f"effects:{order}", 0, -1)
        return found

    def said(self, order: str, word: str) -> None:
        """A job about the order has come to that point."""
        self._next(f"said:{order}", word)

    def tell(self, order: str, times: int = 1) -> None:
        """So many jobs that wait may go on."""
        self.ledger.rpush(f"told:{order}", *["go on"] * times)

    def happened(self, key: str, *names: str) -> None:
        """Workers have told of these events, after those that were asked for before.

        Two workers may tell in any order: who sees that another has completed may be quicker.
        """
        missing = list(names)
        heard = []
        for found in self._heard(f"events:{key}"):
            heard.append(found)
            if found in missing:
                missing.remove(found)
            if not missing:
                return
        raise AssertionError(f"{key}: no {missing} in {heard}; {self._told()}")

    def line(self, key: str, text: str) -> dict[str, Any]:
        """The log line of a worker that opens with the text."""
        for found in self._heard(f"lines:{key}"):
            line: dict[str, Any] = json.loads(found)
            if line["text"].startswith(text):
                return line
        raise AssertionError(f"no line {text!r} about {key}: {self._told()}")

    def left_over(self, name: str) -> list[str]:
        """What was told there and nobody has asked for."""
        found: list[str] = self.ledger.lrange(name, 0, -1)
        return found

    def settled(self, condition: Callable[[], bool]) -> None:
        """What a worker does in a moment is done."""

        def holds() -> bool:
            found = condition()
            if not found:
                self._assert_workers()
            return found

        until(holds, self._told)

    def metric(self, line: str) -> float:
        """The sum of a metric over all workers, as they show it to Prometheus."""
        pages = self.ledger.hvals("metrics")
        rows = (row.rpartition(" ") for page in pages for row in page.splitlines())
        return sum(float(value) for name, _, value in rows if name == line)

    def _next(self, name: str, word: str) -> None:
        heard = []
        for found in self._heard(name):
            if found == word:
                return
            heard.append(found)
        raise AssertionError(f"{name}: not {word!r} but {heard}; {self._told()}")

    def _heard(self, name: str) -> Iterator[str]:
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            found = self.ledger.blpop([name], 1)
            if found is not None:
                yield found[1]
            elif not any(worker.process.poll() is None for worker in self.workers):
                self._assert_workers()
                return

    def _assert_workers(self) -> None:
        """Fail if there were workers and all of them have died: nobody does a job any more."""
        died = bool(self.workers) and all(worker.died() for worker in self.workers)
        assert not died, f"all workers have died; {self._told()}"

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method of the queue, which fails when all workers have died while it waits.

        A client that waits for a job looks at nothing else: a timer looks at the workers meanwhile.
        """

        def look(*_: object) -> None:
            self._assert_workers()

        @functools.wraps(method)
        def watched(*args: Any) -> Any:
            look()
            before = signal.signal(signal.SIGALRM, look)
            signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
            try:
                return method(*args)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)

        return watched

    def _told(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    # Trouble with the store

    @contextlib.contextmanager
    def without_store(self) -> Iterator[None]:
        """The store is dead. Afterwards it lives, has forgotten all, and workers know."""
        self.store.kill()
        try:
            yield
        finally:
            self.store.start()
            for _ in self.workers:  # each has to find out
                self._until_protected()

    @contextlib.contextmanager
    def store_paused(self) -> Iterator[None]:
        """The store does not answer; afterwards it does, and has forgotten nothing."""
        self.store.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.store.process.send_signal(signal.SIGCONT)

    def _until_protected(self) -> None:
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            order = self.order()
            self.queue.put("charge", order, 1)
            if next(self._heard(f"events:{order}"), "") == "new":
                return
        raise AssertionError(f"workers do not find the store: {self._told()}")
