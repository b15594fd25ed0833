"""Consumers are killed at random; every message is processed, and none of them twice.

INBOX_MESSAGES=2000 makes it as long as it takes to trust it.
"""

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import deque

import pytest

from oncekey import InProgressError
from oncekey.messages import Message
from tests.messages.consumer import consume, stall
from tests.messages.together import PRELOADED, lapse
from tests.patience import until

MESSAGES = int(os.environ.get("INBOX_MESSAGES", "0"))
CONSUMERS = 3
WINDOW = 8
MESSAGE = 0.005
"""About how many seconds a consumer spends on one."""
FORKS = multiprocessing.get_context("forkserver")


class Broker:
    """Delivers every message to each consumer, and again whatever was not acknowledged."""

    def __init__(self, arguments, numbers, kills, seed, target=consume):
        self.arguments, self.target = arguments, target
        self.numbers = numbers
        self.kills = kills
        self.seed = seed
        self.killed = 0
        self.answers = {number: set() for number in numbers}
        self.failures = []
        self.lock = threading.Lock()
        self.chance = random.Random(seed)  # noqa: S311 - no secret

    def run(self):
        threads = [threading.Thread(target=self._serve, args=(one,)) for one in range(CONSUMERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert self.failures == []

    def _serve(self, one):
        try:
            chance = random.Random(f"{self.seed} {one}")  # noqa: S311 - no secret
            waiting = deque(chance.sample(self.numbers, len(self.numbers)))
            for _ in range(self.kills):
                most = max(1, len(self.numbers) // self.kills - WINDOW)
                self._consumer(waiting, chance.randint(1, most))
            self._consumer(waiting, None)
        except BaseException as error:  # noqa: BLE001 - the test tells of it
            self.failures.append(repr(error))

    def _consumer(self, waiting, lives):
        """One process: it is killed after so many answers, wherever it is then."""
        ours, theirs = FORKS.Pipe()
        process = FORKS.Process(target=self.target, args=(theirs, *self.arguments))
        with self.lock:  # whoever starts a process also looks after those of others
            process.start()
        theirs.close()
        under_way = []
        while (waiting or under_way) and lives != 0:
            while waiting and len(under_way) < WINDOW:
                under_way.append(waiting.popleft())
                ours.send(under_way[-1])
            number, answer = ours.recv()
            under_way.remove(number)
            if answer is None:
                waiting.append(number)
            else:
                self.answers[number].add(answer)
                lives = None if lives is None else lives - 1
        if lives == 0:
            with self.lock:
                time.sleep(self.chance.random() * MESSAGE)  # anywhere in the message it is at
                process.kill()
                process.join()
            assert process.exitcode == -signal.SIGKILL
            self.killed += 1
            waiting.extend(under_way)
        else:
            ours.send(None)
            with self.lock:
                process.join()
            assert process.exitcode == 0
        ours.close()


@pytest.mark.row("M6")
@pytest.mark.parametrize(
    ("name", "mode", "count", "kills"),
    [
        ("psycopg", "atomic", 150, 3),
        ("sqlalchemy", "atomic", 60, 1),
        ("psycopg", "leased", 60, 1),
        ("sqlalchemy", "leased", 150, 3),
        ("django", "atomic", 40, 1),
        ("asyncpg", "atomic", 60, 1),
        ("asyncpg", "leased", 40, 1),
    ],
)
def test_every_message_is_processed_once(way_of, open_inbox, name, mode, count, kills):  # noqa: PLR0917 - a table of cases
    way = way_of("psycopg" if name == "asyncpg" else name)
    open_inbox(way.url).migrate()
    FORKS.set_forkserver_preload(PRELOADED)
    if MESSAGES:
        count, kills = (MESSAGES, 12) if name != "django" else (MESSAGES // 5, 4)
    numbers = [f"m-{number}" for number in range(count)]
    broker = Broker((name, mode, way.url), numbers, kills, seed=random.randrange(10**6))  # noqa: S311 - no secret
    broker.run()
    assert broker.killed == CONSUMERS * kills
    assert way.orders() == sorted(numbers), f"seed {broker.seed}"
    assert broker.answers == {number: {f"receipt of {number}"} for number in numbers}
    assert {row[2] for row in way.marks()} == {"completed"}


@pytest.mark.parametrize("name", ["psycopg", "sqlalchemy"])
def test_a_paused_consumer_that_lost_its_lease_cannot_complete(way_of, open_inbox, name):
    way = way_of(name)
    inbox = open_inbox(way.url)
    FORKS.set_forkserver_preload(PRELOADED)
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=stall, args=(theirs, name, way.url))
    process.start()
    theirs.close()
    assert ours.recv() == "claimed"
    os.kill(process.pid, signal.SIGSTOP)
    lapse(way)
    until(lambda: taken_over(inbox))
    os.kill(process.pid, signal.SIGCONT)
    ours.send("go on")
    assert ours.recv() == "LeaseLostError"
    process.join()
    assert process.exitcode == 0
    assert way.orders() == []
    assert inbox.is_processed("m-1")
    ours.close()


def taken_over(inbox):
    try:
        with inbox.leased(Message(id="m-1")) as delivery:
            assert delivery.number == 2
            delivery.complete("taken over")
    except InProgressError:
        return False
    return True
