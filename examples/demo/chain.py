"""The case of three services that send each other messages, and die at the worst moments."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from examples.chain.chain import Chain, on_files
from examples.demo.case import PATIENCE, Case, Place
from examples.demo.talk import Exchange, Line
from examples.tour.step import Fact

ORDERS = 20
DEADLY = {
    "orders": ["before publish:1"],
    "payments": ["after publish:1"],
    "mail": ["before commit:3"],
}


def chained(_: Place) -> Iterator[Exchange | Line | Fact]:
    yield Line(">", f"place {ORDERS} orders; payments charges for them, and mail writes receipts")
    yield Line(">", "kill orders before it has sent a message that is committed")
    yield Line(">", "kill payments when a broker has its message, and before it has noted that")
    yield Line(">", "kill mail in the middle of a transaction; start all of them again")
    with (
        tempfile.TemporaryDirectory(prefix="oncekey-chain-") as folder,
        Chain(on_files(Path(folder), ORDERS, deadly=DEADLY)) as chain,
    ):
        give_up = time.monotonic() + PATIENCE
        while time.monotonic() < give_up:
            chain.tend()
            if all(chain.kills.values()) and chain.settled():
                break
            time.sleep(0.02)
        found = chain.totals()
    yield Line("<", f"{found.orders} orders, {found.charges} charges, {found.mails} mails")
    yield Fact("each of the three was killed", found.kills == len(DEADLY))
    yield Fact(f"each of {ORDERS} orders was charged once", found.charges == ORDERS)
    yield Fact("and got one mail", found.mails == ORDERS)
    yield Fact("nothing was lost, nothing doubled", (found.lost, found.doubled) == (0, 0))
    yield Fact("a broker delivered something twice, and the inbox knew", found.repeats > 0)


CHAINED = Case(
    name="chained",
    title="Three services send each other messages, and each is killed",
    play=chained,
    why="A service commits its row, the mark of the message it read, and the message it sends in "
    "one transaction: inbox and outbox. What was committed is sent until the broker has it, and "
    "what comes twice is known by its id.",
    asks=(),
)
