"""Which core a process runs on, where the system lets us choose.

The CPU time of a GET depends on it: woken by a server on another core, the client pays about twice
as much as beside it on the same core. Left to the scheduler, a run would measure either or both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def on_one_core() -> Iterator[tuple[int, int] | None]:
    """In the block the thread stays on one core: that core and another, or None without a choice.

    Threads that it starts here stay there too.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield None
        return
    allowed = os.sched_getaffinity(0)
    if len(allowed) == 1:
        yield None
        return
    here, other, *_ = sorted(allowed)
    os.sched_setaffinity(0, {here})
    try:
        yield here, other
    finally:
        os.sched_setaffinity(0, allowed)


def mover(pid: int, core: int) -> Callable[[], None]:
    """A function that puts the process with all its threads on the core."""
    threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]

    def move() -> None:
        for thread in threads:
            os.sched_setaffinity(thread, {core})

    return move
