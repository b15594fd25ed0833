"""Forks while threads write: python -m tests.faults.matrix.forking STORE CHILDREN

It prints how many children there were, how many never ended, and how many keys are not recorded.
"""

import os
import signal
import sys
import threading
from contextlib import closing

from oncekey import Once
from tests.patience import until

THREADS = 4


def effect(key: str) -> str:
    return key


def child_of(once: Once, key: str) -> int:
    """The number of a forked process that makes one call."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            once.run(key, effect, key)
            code = 0
        finally:
            os._exit(code)
    return pid


def ends_well(pid: int) -> bool:
    """Whether it ends, and without an error; one that hangs is ended."""

    def ended() -> list[int]:
        found, status = os.waitpid(pid, os.WNOHANG)
        return [os.waitstatus_to_exitcode(status)] if found else []

    try:
        return bool(until(ended) == [0])
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False


def main(place: str, children: int) -> None:
    written: list[str] = []
    stop = threading.Event()
    with closing(Once(place, cache=False, observers=())) as once:

        def write(number: int) -> None:
            count = 0
            while not stop.is_set():
                count += 1
                written.append(once.run(f"{number}:{count}", effect, f"{number}:{count}"))

        threads = [threading.Thread(target=write, args=(one,)) for one in range(THREADS)]
        for thread in threads:
            thread.start()
        until(lambda: len(written) > THREADS)
        pids = [child_of(once, f"child:{number}") for number in range(children)]
        stuck = sum(not ends_well(pid) for pid in pids)
        stop.set()
        for thread in threads:
            thread.join()
        keys = [*written, *(f"child:{number}" for number in range(children))]
        lost = sum(getattr(once.get(key), "status", "") != "completed" for key in keys)
    sys.stdout.write(f"children={len(pids)} keys={len(keys)} stuck={stuck} lost={lost}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
