"""The keeper: one background thread per process, for work that goes on while user code runs.

It renews leases, repeats requests that failed, and purges. Each of these is a chore: it is done
again after the delay that it returns, until it returns None. Chores that ask a store form a lane,
which has a thread of its own while any of them is due. A store that hangs thus does not delay the
leases of other stores.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections import deque
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from oncekey.compat import renew_after_fork
from oncekey.observe.logger import logger

_LAST_CHANCE: Final = 2.0
_SOONER: Final = 0.9


class Chore:
    """Work that the keeper repeats until it is finished."""

    __slots__ = ("queue",)

    def __init__(self) -> None:
        """Start outside of any queue."""
        self.queue: dict[Chore, float] | None = None

    def do(self) -> float | None:
        """Do the work once. Return the seconds until the next time, or None to stop."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Report that the process ends and the chore is not finished, if that matters."""

    def at_end(self) -> None:
        """Do what can still be done when the process ends, if the store has not failed just now."""

    @property
    def urgent(self) -> bool:
        """Whether the chore must be tried once more before the process ends."""
        return False

    @property
    def lane(self) -> object:
        """The store that the chore asks, or None if it asks none."""
        return None


class Keeper:
    """The thread and its chores.

    Chores with the same delay are in one queue, in the order in which they are due. To take one up
    or to drop it therefore costs the same however many there are.
    """

    def __init__(self) -> None:
        """Start without a thread: it is started by the first chore."""
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
        """Start without chores in a forked child: those of the parent stay there."""
        self._reset()

    def take_up(self, chore: Chore, delay: float) -> None:
        """Do the chore for the first time after `delay` seconds."""
        if sys.is_finalizing():  # `finish` is over, and a thread that started now would never run
            chore.give_up()
            return
        with self._lock:
            self._enqueue(chore, delay)

    def drop(self, chore: Chore) -> None:
        """Stop doing the chore."""
        with self._lock:
            queue, chore.queue = chore.queue, None
            if queue is not None:
                queue.pop(chore, None)

    def finish(self) -> None:
        """End the thread, and try each urgent chore once more. What still fails is given up.

        Then every chore does what it does at the end. After a failure the other chores of that
        store are tried for `_LAST_CHANCE` seconds: it may refuse one record alone, or be down.
        Chores of a store that hangs come last, so that they do not delay the others.
        """
        with self._lock:
            thread, self._stopping = self._thread, True
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_CHANCE)
        with self._lock:
            free = [chore for chore in self._queued() if id(chore.lane) not in self._lanes]
        failing: dict[int, float] = {}
        self._try_once_more(free, failing)
        with self._lock:
            self._changed.wait_for(lambda: not self._lanes, _LAST_CHANCE)
            left = [chore for due in self._lanes.values() for chore in due]
            left += [chore for chore in self._queued() if chore not in set(free)]
            failing.update(dict.fromkeys(self._lanes, -inf))
        self._try_once_more(left, failing)
        for chore in (*free, *left):
            if id(chore.lane) not in failing:
                try:
                    chore.at_end()
                except Exception:  # noqa: BLE001 - as in `_do`
                    logger.exception("a chore of the keeper failed when the process ended")
        self._reset()

    def _queued(self) -> list[Chore]:
        return [chore for queue in self._queues.values() for chore in queue]

    def _try_once_more(self, chores: list[Chore], failing: dict[int, float]) -> None:
        """Try the urgent chores once.

        `failing` has the lanes of the stores that failed, and until when they are tried.
        """
        for chore in chores:
            if not chore.urgent:
                continue
            begun = monotonic()
            if begun >= failing.get(id(chore.lane), inf):
                chore.give_up()
            elif self._do(chore) is not None:
                chore.give_up()
                if chore.lane is not None:
                    failing.setdefault(id(chore.lane), begun + _LAST_CHANCE)

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
        except RuntimeError:  # the interpreter is shutting down: `finish` does the urgent chores
            return
        self._thread = thread

    def _run(self) -> None:
        while True:
            with self._lock:
                due = self._due()
                while not due and not self._stopping:
                    self._changed.wait(max(0.0, self._wakes_at - monotonic()))
                    due = self._due()
                if self._stopping and not due:  # what is due is in no queue: do it first
                    return
            for chore in due:
                if chore.lane is None:
                    self._do_and_keep(chore)
                else:
                    self._hand_over(chore)

    def _hand_over(self, chore: Chore) -> None:
        """Let the thread of the chore's store do it, after the chores that are due there."""
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
        except RuntimeError:  # no more threads can be started
            work()

    def _work(self, lanes: dict[int, deque[Chore]], lane: int) -> None:
        """Do all chores that are due in the lane.

        After one urgent chore has failed, the other urgent ones are put off without a try. They are
        then due before it, because it may be one that fails for ever.
        """
        again: float | None = None
        while True:
            with self._lock:
                if not lanes[lane]:
                    del lanes[lane]
                    self._changed.notify_all()
                    return
                chore = lanes[lane][0]
            if again is not None and chore.urgent:
                self._keep(chore, again * _SOONER)
            else:
                delay = self._do_and_keep(chore)
                again = delay if chore.urgent else again
            with self._lock:  # only now: `finish` must see the chore of a store that hangs
                lanes[lane].popleft()

    def _due(self) -> list[Chore]:
        """Take the chores that are due out of the queues and return them, the earliest first.

        Set `_wakes_at` to the time at which the next one is due.
        """
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
        if chore.queue is None:  # dropped meanwhile
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
            logger.exception("a chore of the keeper failed and is given up")
            return None


keeper: Final = Keeper()
"""The keeper of this process."""
