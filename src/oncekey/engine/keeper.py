"""The keeper: one thread per process that does what must go on while user code runs.

It renews leases, goes on settling what could not be settled, and purges. All of these are
chores: each is done again after a while, until it says that it is over. Those that ask a store
are done on a thread of that store, as long as some are due: a store that hangs holds up nobody
else's leases.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections import deque
from functools import partial
from time import monotonic
from typing import Final

from oncekey.compat import renew_after_fork

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

    @property
    def lane(self) -> object:
        """The store that it waits for; None for a chore that waits for nothing."""
        return None


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
        self._lanes: dict[int, deque[Chore]] = {}
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
        """The thread ends, after one last try at what is urgent; of a store that fails, one.

        What waits for a store that hangs comes last, so that it holds up nobody else.
        """
        with self._lock:
            thread, self._stopping = self._thread, True
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_CHANCE)
        with self._lock:
            free = [chore for chore in self._queued() if id(chore.lane) not in self._lanes]
        failing = self._try_once_more(free, set())
        with self._lock:
            self._changed.wait_for(lambda: not self._lanes, _LAST_CHANCE)
            left = [chore for due in self._lanes.values() for chore in due]
            left += [chore for chore in self._queued() if chore not in set(free)]
            failing |= {*self._lanes}
        self._try_once_more(left, failing)
        self._reset()

    def _queued(self) -> list[Chore]:
        return [chore for queue in self._queues.values() for chore in queue]

    def _try_once_more(self, chores: list[Chore], failing: set[int]) -> set[int]:
        """Those that are urgent were tried; the lanes that do not get through."""
        for chore in chores:
            if not chore.urgent or id(chore.lane) in failing:
                continue
            if self._do(chore) is not None and chore.lane is not None:
                failing.add(id(chore.lane))
        return failing

    def _enqueue(self, chore: Chore, delay: float) -> None:
        due = monotonic() + delay
        queue = self._queues.get(delay)
        if queue is None:
            queue = self._queues[delay] = {}
        queue[chore] = due
        chore.queue = queue
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
                if chore.lane is None:
                    self._do_and_keep(chore)
                else:
                    self._hand_over(chore)

    def _hand_over(self, chore: Chore) -> None:
        """It is done by the thread of its store, after what is due there already."""
        lane = id(chore.lane)
        with self._lock:
            due = self._lanes.get(lane)
            if due is not None:
                due.append(chore)
                return
            self._lanes[lane] = deque((chore,))
        work = partial(self._work, self._lanes, lane)
        thread = threading.Thread(target=work, name="oncekey-keeper-store", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # there can be no more threads
            work()

    def _work(self, lanes: dict[int, deque[Chore]], lane: int) -> None:
        """All that is due there is done. Where one could not get through, the rest need not try."""
        again: float | None = None
        while True:
            with self._lock:
                if not lanes[lane]:
                    del lanes[lane]
                    self._changed.notify_all()
                    return
                chore = lanes[lane].popleft()
            if again is not None and chore.urgent:
                self._keep(chore, again)
            else:
                delay = self._do_and_keep(chore)
                again = delay if chore.urgent else again

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

    def _do_and_keep(self, chore: Chore) -> float | None:
        if chore.queue is None:  # dropped since
            return None
        delay = self._do(chore)
        if delay is not None:
            self._keep(chore, delay)
        return delay

    def _keep(self, chore: Chore, delay: float) -> None:
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
