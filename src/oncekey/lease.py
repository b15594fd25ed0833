"""The keeper: one thread per process that does what must go on while user code runs.

It renews leases, goes on settling what could not be settled, and purges. All of these are
chores: each is done again after a while, until it says that it is over.
"""

from __future__ import annotations

import atexit
import logging
import threading
from time import monotonic
from typing import Final

from oncekey.fork import renew_after_fork

_log = logging.getLogger("oncekey")

_LAST_CHANCE: Final = 2.0


class Chore:
    """Something the keeper does from time to time."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        """A chore that nobody keeps yet."""
        self.queue: dict[Chore, float] | None = None

    def do(self) -> float | None:
        """Do it once; the answer is after how many seconds again, or None for never."""
        raise NotImplementedError

    @property
    def urgent(self) -> bool:
        """Whether it must be tried once more before the process ends."""
        return False


class Keeper:
    """The thread and its chores.

    Chores with the same delay stand in one queue, in the order in which they are due; so taking
    one up and dropping it cost the same however many there are.
    """

    def __init__(self) -> None:
        """No thread runs before there is something to do."""
        self._reset()
        renew_after_fork(self)
        atexit.register(self.finish)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._queues: dict[float, dict[Chore, float]] = {}
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0
        self._stopping = False

    def after_fork(self) -> None:
        """The parent's chores stay with the parent."""
        self._reset()

    def take_up(self, chore: Chore, delay: float) -> None:
        """The chore is done for the first time after `delay` seconds."""
        with self._lock:
            self._enqueue(chore, delay)

    def drop(self, chore: Chore) -> None:
        """The chore is not done any more."""
        with self._lock:
            queue, chore.queue = chore.queue, None
            if queue is not None:
                queue.pop(chore, None)

    def finish(self) -> None:
        """The thread ends, after one last try at what is urgent."""
        with self._lock:
            thread, self._stopping = self._thread, True
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_CHANCE)
        for queue in list(self._queues.values()):
            for chore in list(queue):
                if chore.urgent:
                    self._do(chore)
        self._reset()

    def _enqueue(self, chore: Chore, delay: float) -> None:
        due = monotonic() + delay
        chore.queue = self._queues.setdefault(delay, {})
        chore.queue[chore] = due
        if self._thread is None:
            self._start()
        elif due < self._wakes_at:
            self._changed.notify()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="oncekey-keeper", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending: `finish` does what must be done
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            with self._lock:
                due = self._due()
                while not due and not self._stopping:
                    self._changed.wait(max(0.0, self._wakes_at - monotonic()))
                    due = self._due()
                if self._stopping and not due:  # what is due stands in no queue any more
                    return
            for chore in due:
                self._do_and_keep(chore)

    def _due(self) -> list[Chore]:
        """The chores whose time has come; sets when the next one's does."""
        now = monotonic()
        ready: dict[Chore, float] = {}
        self._wakes_at = now + 3600.0
        for delay, queue in list(self._queues.items()):
            for chore, due in queue.items():
                if due > now:
                    self._wakes_at = min(self._wakes_at, due)
                    break
                ready[chore] = due
            for chore in ready:
                queue.pop(chore, None)
            if not queue and len(self._queues) > 64:  # noqa: PLR2004 - odd delays must not pile up
                del self._queues[delay]
        return sorted(ready, key=ready.__getitem__)

    def _do_and_keep(self, chore: Chore) -> None:
        if chore.queue is None:  # dropped since
            return
        delay = self._do(chore)
        if delay is None:
            return
        with self._lock:
            if chore.queue is not None:
                self._enqueue(chore, delay)

    @staticmethod
    def _do(chore: Chore) -> float | None:
        try:
            return chore.do()
        except Exception:  # noqa: BLE001 - a defect of one chore must not stop the others
            _log.exception("a chore of the keeper failed and is given up")
            return None


keeper: Final = Keeper()
"""The keeper of this process."""
