"""What is asked, case by case, and what must be true of the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from examples.demo.case import PATIENCE, Case, Place
from examples.demo.talk import Exchange, delivery, payment
from examples.tour.step import Fact

CROWD = 10


FIRST_ASK = payment(100, "idem_aaaa1111")


def first(place: Place) -> Iterator[Exchange | Fact]:
    yield (answer := place.send(FIRST_ASK))
    yield Fact("the payment succeeded", answer.value.get("status") == "succeeded")
    yield Fact("the gateway's book has 1 charge", len(place.charges()) == 1)


def retry(place: Place) -> Iterator[Exchange | Fact]:
    before = place.charges()
    yield (answer := place.send(FIRST_ASK, to=2))
    yield Fact("the same payment", answer.value.get("paymentId") == f"pay_{before[-1].number:06}")
    yield Fact("marked as a replay", answer.replayed)
    yield Fact("the book still has 1 charge", place.charges() == before)


CROWD_ASK = payment(101, "idem_bbbb2222")


def concurrent(place: Place) -> Iterator[Exchange | Fact]:
    before = len(place.charges())
    with ThreadPoolExecutor(CROWD) as pool:
        crowd = pool.map(lambda n: place.send(CROWD_ASK, to=1 + n % 2), range(CROWD))
        answers = sorted(crowd, key=lambda answer: answer.replayed)
    yield from answers
    yield Fact(f"{CROWD} equal answers", len({(one.status, one.body) for one in answers}) == 1)
    yield Fact(f"{CROWD - 1} are replays", sum(one.replayed for one in answers) == CROWD - 1)
    yield Fact("the book has 1 charge more", len(place.charges()) == before + 1)


CONFLICT_ASKS = payment(120, "idem_cccc3333"), payment(121, "idem_cccc3333")


def conflict(place: Place) -> Iterator[Exchange | Fact]:
    before = len(place.charges())
    yield place.send(CONFLICT_ASKS[0])
    yield (refused := place.send(CONFLICT_ASKS[1], to=2))
    yield Fact("the second was refused", refused.status == 409)
    yield Fact("the book has 1 charge more", len(place.charges()) == before + 1)


FAILURE_ASK = payment(98, "idem_dddd4444")


def failure(place: Place) -> Iterator[Exchange | Fact]:
    before = len(place.charges())
    yield (failed := place.send(FAILURE_ASK))
    yield (again := place.send(FAILURE_ASK, to=2))
    yield Fact("the charge failed", failed.value.get("status") == "failed")
    yield Fact(
        "the retry got the same failure", (again.replayed, again.body) == (True, failed.body)
    )
    yield Fact("the gateway was asked once", len(place.charges()) == before + 1)


EXPIRY_ASK = payment(102, "idem_eeee5555")


def expiry(place: Place) -> Iterator[Exchange | Fact]:
    before = len(place.charges())
    yield (old := place.send(EXPIRY_ASK, to=3))
    give_up = time.monotonic() + PATIENCE
    while (new := place.send(EXPIRY_ASK, to=3)).replayed and time.monotonic() < give_up:
        time.sleep(0.05)
    yield new
    yield Fact("a second later it ran anew", not new.replayed)
    yield Fact("another payment", new.value.get("paymentId") != old.value.get("paymentId"))
    yield Fact("the book has 2 charges more", len(place.charges()) == before + 2)


WEBHOOK_ASK = delivery("webhook-001", "anchor-tx-12345")


def webhook(place: Place) -> Iterator[Exchange | Fact]:
    yield (accepted := place.send(WEBHOOK_ASK))
    yield (again := place.send(WEBHOOK_ASK, to=2))
    yield Fact("the first was processed", accepted.value.get("success") is True)
    yield Fact("the second was told so", again.value.get("cached") is True)
    yield Fact("the event was processed once", place.events() == ["webhook-001"])


CASES = (
    Case(
        name="first",
        title="The first request charges",
        play=first,
        why="The key was claimed in the store before the charge; the answer was kept, then sent.",
        asks=(FIRST_ASK,),
    ),
    Case(
        name="retry",
        title="A retry gets the same answer, from another server",
        play=retry,
        why="Both servers have one store. The record answers, and nothing runs.",
        asks=(FIRST_ASK,),
    ),
    Case(
        name="concurrent",
        title="Ten at once, five to each server",
        play=concurrent,
        why="One claim wins. The others wait for its answer instead of failing.",
        asks=(CROWD_ASK, CROWD_ASK),
    ),
    Case(
        name="conflict",
        title="The same key with another amount is refused",
        play=conflict,
        why="A record holds a fingerprint of userId, amount and currency.",
        asks=CONFLICT_ASKS,
    ),
    Case(
        name="failure",
        title="A charge that failed is an answer too",
        play=failure,
        why="Policy A: a retry cannot turn a refusal into a charge. Another try needs another key.",
        asks=(FAILURE_ASK, FAILURE_ASK),
    ),
    Case(
        name="expiry",
        title="The time to live is over",
        play=expiry,
        why="An expired record is the same as none. Server 3 keeps records for a second; a day is "
        "usual.",
        asks=(EXPIRY_ASK, EXPIRY_ASK),
    ),
    Case(
        name="webhook",
        title="A webhook is delivered twice",
        play=webhook,
        why="Providers deliver until they hear 2xx. Of a webhook only the status is kept.",
        asks=(WEBHOOK_ASK, WEBHOOK_ASK),
    ),
)
