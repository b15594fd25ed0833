"""The step in which a process dies: `python -m examples.tour.crash` is the one that gets killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from examples.tour.shop import Receipt, bank, once
from examples.tour.step import Fact, Step

ROOT = Path(__file__).parents[2]


def pay_out(here: Callable[[], object]) -> tuple[Receipt, dict[str, Any], int]:
    with once.options(lease="500ms").attempt("payout:7", returns=Receipt) as attempt:
        number = attempt.step("book", bank.book, "payout-7")
        attempt.note(told_by_bank=number)
        here()  # the first process never gets past this line
        attempt.complete(Receipt(number, 500))
        return attempt.result, attempt.notes, attempt.number


def crash_and_take_over() -> tuple[int, Receipt, dict[str, Any], int]:
    process = start_worker()  # it calls pay_out and waits at that line
    process.kill()
    return process.wait(), *pay_out(here=lambda: None)


def crash_facts(seen: tuple[int, Receipt, dict[str, Any], int]) -> Iterator[Fact]:
    code, receipt, notes, number = seen
    yield Fact(f"the first process ended with {code}: SIGKILL", code == -signal.SIGKILL)
    yield Fact(f"this one took over, as attempt {number}", number == 2)
    yield Fact(f"it found the note {notes}", notes == {"told_by_bank": receipt.number})
    yield Fact("it skipped the step: the bank booked once", bank.times("payout-7") == 1)
    yield Fact(f"and completed: {receipt}", receipt.amount == 500)


CRASH = Step(
    title="A process is killed half way, another one takes over",
    uses=(pay_out,),
    scene=crash_and_take_over,
    facts=crash_facts,
    why="Nobody renewed the lease, so it ran out and the key was granted again. What steps and "
    "notes had kept was handed over.",
)


def start_worker() -> subprocess.Popen[bytes]:
    """Another process that has booked and noted, and goes no further."""
    command = [sys.executable, "-m", "examples.tour.crash"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)  # noqa: S603  # our own file
    assert process.stdout is not None
    with process.stdout as said:
        said.readline()
    return process


def stop_here() -> None:
    """Tell who started this process how far it is, and wait for the end."""
    sys.stdout.write("booked\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    pay_out(here=stop_here)
