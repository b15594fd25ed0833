"""A process of its own, driven by the tests: python -m tests.processes.worker MODE PLACE LEDGER ...

The ledger is a file to which every effect adds a line; it prevents nothing, it counts.
"""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path

from oncekey import ConfigurationError, Once, current, current_async
from tests.leases import LONG, beat_often
from tests.patience import PATIENCE
from tests.processes.store_urls import opened

PROCESSES = 4


def effect(ledger: str, line: str) -> None:
    with Path(ledger).open("a") as file:  # one small append is one write
        file.write(f"{line}\n")


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def meet(ledger: str, key: int) -> None:
    """All processes go on together: each adds a byte to a file and waits for the last one's."""
    arrivals = Path(f"{ledger}.{key}")
    with arrivals.open("a") as file:
        file.write(".")
    while arrivals.stat().st_size < PROCESSES:
        time.sleep(0.0005)  # so short that all of them go on at once


def crowd_of_threads(store_url: str, ledger: str, keys: str, threads: str) -> None:
    """Every thread asks for every key; the answers are printed by key."""
    once = opened(store_url)
    answers: dict[int, set[str]] = {key: set() for key in range(int(keys))}
    at = iter(answers)
    barrier = threading.Barrier(int(threads), lambda: meet(ledger, next(at)))

    def run(key: int) -> str:
        effect(ledger, f"{key}")
        return f"{key}:{os.getpid()}:{threading.get_ident()}"

    def work() -> None:
        for key, heard in answers.items():
            barrier.wait()
            heard.add(once.options(wait=PATIENCE).run(f"key:{key}", run, key))

    crowd = [threading.Thread(target=work) for _ in range(int(threads))]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    say(json.dumps([sorted(heard) for heard in answers.values()]))


def crowd_of_tasks(store_url: str, ledger: str, keys: str, tasks: str) -> None:
    """Every task asks for every key; the answers are printed by key."""
    once = opened(store_url)

    async def run(key: int) -> str:
        effect(ledger, f"{key}")
        await asyncio.sleep(0)
        return f"{key}:{os.getpid()}:{id(asyncio.current_task())}"

    async def work() -> list[list[str]]:
        patient = once.options(wait=PATIENCE)
        answers = []
        for key in range(int(keys)):
            await asyncio.to_thread(meet, ledger, key)
            crowd = [patient.run_async(f"key:{key}", run, key) for _ in range(int(tasks))]
            answers.append(sorted(set(await asyncio.gather(*crowd))))
        return answers

    say(json.dumps(asyncio.run(work())))


def holding(store_url: str, beats: str) -> Once:
    """A `Once` whose leases end when the test says so."""
    if beats:
        beat_often()
    return opened(store_url).options(lease=LONG)


def stall(store_url: str, ledger: str, answer: str, beats: str = "") -> None:
    """Note, step, say so, wait to be killed or stopped; if it goes on, print the outcome."""
    once = holding(store_url, beats)

    def work() -> str:
        attempt = current()
        attempt.note(reference=f"ref-{attempt.number}")
        attempt.step("charge", effect, ledger, "charge")
        say("inside")
        sys.stdin.readline()
        return answer

    say(once.run("import:1", work))


def stall_async(store_url: str, ledger: str, answer: str, beats: str = "") -> None:
    """The same for coroutines. The loop is blocked while it waits: the keeper does not mind."""
    once = holding(store_url, beats)

    async def work() -> str:
        attempt = current_async()
        await attempt.note(reference=f"ref-{attempt.number}")
        await attempt.step("charge", effect, ledger, "charge")
        say("inside")
        sys.stdin.readline()
        return answer

    say(asyncio.run(once.run_async("import:1", work)))


def fork(store_url: str, ledger: str) -> None:
    """A `Once` that was made and used before a fork works in the child, in both colours."""
    once = opened(store_url)

    def work(name: str) -> str:
        effect(ledger, name)
        return name

    async def work_async(name: str) -> str:
        effect(ledger, name)
        return name

    def both(name: str) -> None:
        for _ in range(2):
            assert once.run(f"{name}", work, name) == name
            assert asyncio.run(once.run_async(f"{name}-a", work_async, f"{name}-a")) == f"{name}-a"

    def forked() -> int:
        """Fork in the middle of a protected call, whose flight and attempt stay the parent's."""
        child = os.fork()
        if child == 0:
            try:
                current()
            except ConfigurationError:
                both("child")
                both("before")  # answered from the record that the parent made
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status)

    both("before")
    assert once.run("forking", forked) == 0
    both("after")
    say("both lived")


def environment() -> None:
    """The store is the one that the environment names."""
    say(Once().run("order-1", lambda: "done"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
