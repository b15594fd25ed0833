"""Which core a process runs on, where the system lets us choose.

The CPU time of a GET depends on it: woken by a server on another core, the client pays about twice
as much as beside it on the same core. Left to the scheduler, a run would measure either or both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Cores:
    """Two cores: that of this thread, and another one."""

    def __init__(self, allowed: set[int]) -> None:
        """Take the first two of those that are allowed."""
        self._allowed = allowed
        self._moved: set[int] = set()
        self.here, self.other, *_ = sorted(allowed)

    def mover(self, pid: int, core: int) -> Callable[[], None]:
        """A function that puts the process with all its threads on the core."""
        threads = _threads(pid)
        self._moved.add(pid)

        def move() -> None:
            for thread in threads:
                os.sched_setaffinity(thread, {core})

        return move

    def leave(self) -> None:
        """Let this thread and all that was moved run where they like, for whatever comes next."""
        os.sched_setaffinity(0, self._allowed)
        for pid in self._moved:
            with suppress(OSError):  # it has ended
                for thread in _threads(pid):
                    os.sched_setaffinity(thread, self._allowed)


def _threads(pid: int) -> list[int]:
    return [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]


@contextmanager
def on_one_core() -> Iterator[Cores | None]:
    """In the block the thread stays on one core: that core and another, or None without a choice.

    Threads that it starts here stay there too.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if len(allowed) <= 1:
        yield None
        return
    cores = Cores(allowed)
    os.sched_setaffinity(0, {cores.here})
    try:
        yield cores
    finally:
        cores.leave()
