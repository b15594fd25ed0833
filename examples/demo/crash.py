"""The case in which a server is killed after the money has moved and before anybody was told."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from examples.demo.case import PATIENCE, Case, Place
from examples.demo.talk import Exchange, payment
from examples.tour.step import Fact

# 13 divides it: the gateway charges, and does not answer.
ASK = payment(130, "idem_ffff6666")


def crash(place: Place) -> Iterator[Exchange | Fact]:
    before = len(place.charges())
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(place.send, ASK)
        give_up = time.monotonic() + PATIENCE
        while len(place.charges()) == before and time.monotonic() < give_up:
            time.sleep(0.01)
        code = place.kill()
        yield (unanswered := asked.result())
    place.restart()
    yield (again := place.send(ASK))
    yield Fact(f"server 1 ended with {code}: SIGKILL", code == -signal.SIGKILL)
    yield Fact("its client got no answer", unanswered.status == 0)
    yield Fact("the retry was told that it had succeeded", again.value.get("status") == "succeeded")
    yield Fact("the book has 1 charge more, not 2", len(place.charges()) == before + 1)


CRASH = Case(
    name="crash",
    title="Server 1 is killed between charge and answer, and started again",
    play=crash,
    why="The reference of the charge was noted before it was made. When the dead server's lease "
    "was over, the retry looked it up in the gateway's book instead of charging again.",
    asks=(ASK,),
)
