"""Calls into which signals raise exceptions at random moments: python -m ... STORE CUTS

Afterwards no key may be refused for longer than its lease, and other keys go on as if nothing had
been. It prints how many calls were cut off.
"""

import faulthandler
import random
import signal
import sys
import threading
import time

from oncekey import InProgressError, Once, OncekeyError
from tests.patience import PATIENCE, until
from tests.processes.store_urls import using


class CutOff(Exception):  # noqa: N818 - as a time limit of a task queue is one
    """Raised by the handler of the signal."""


class CutOffHard(BaseException):
    """The same, which `except Exception` does not catch: KeyboardInterrupt is such a one."""


class Timer:
    """Raises an exception once. A signal that another thread has got may come too late."""

    armed = False
    rang = False

    @classmethod
    def ring(cls, *_: object) -> None:
        if cls.armed:
            cls.rang = True
            raise random.choice((CutOff, CutOffHard))  # noqa: S311 - no secret


def is_cut_off(call, key: str, delay: float) -> bool:
    try:
        try:
            Timer.armed, Timer.rang = True, False
            signal.setitimer(signal.ITIMER_REAL, delay)
            call(key)
        finally:
            Timer.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (CutOff, CutOffHard):
        return True
    except OncekeyError:  # a driver has made another error of it
        if not Timer.rang:
            raise
        return True
    return False


def how_long(call) -> float:
    """Seconds that a call takes here and now, roughly."""
    started = time.perf_counter()
    for number in range(20):
        call(f"measured:{number}")
    return (time.perf_counter() - started) / 20


def main(once: Once, cuts: int) -> None:
    @once.options(lease="500ms", wait=0)("{key}", scope="cut")
    def call(key: str) -> str:
        return key

    @once.options(lease="1h", wait=PATIENCE)("{key}", scope="others")
    def beside(key: str) -> str:
        return key

    stop = threading.Event()
    done: list[str] = []

    def others() -> None:
        while not stop.is_set():
            done.append(beside(f"beside:{len(done)}"))
        done.append("ended")

    thread = threading.Thread(target=others, daemon=True)
    thread.start()
    signal.signal(signal.SIGALRM, Timer.ring)
    longest = 1.5 * how_long(call)
    keys: list[str] = []
    torn = 0
    while torn < cuts:
        keys.append(f"key:{len(keys)}")
        cut = is_cut_off(call, keys[-1], random.uniform(1e-6, longest))  # noqa: S311 - no secret
        torn += cut
        longest *= 1.02 if cut else 0.98  # the machine may be busier now, or less busy
    before = len(done)
    until(lambda: len(done) > before + 10, lambda: "another thread makes no progress")
    stop.set()
    until(lambda: done[-1] == "ended")
    refused = set(keys)

    def all_answer() -> bool:
        for key in sorted(refused):
            try:
                assert call(key) == key
            except InProgressError:
                continue
            refused.discard(key)
        return not refused

    until(all_answer, lambda: f"refused though their leases are over: {sorted(refused)}")
    sys.stdout.write(f"{torn}\n")


if __name__ == "__main__":
    faulthandler.dump_traceback_later(PATIENCE * 0.8, exit=True)  # say where it hangs
    with using(sys.argv[1]) as opened:
        main(opened, int(sys.argv[2]))
