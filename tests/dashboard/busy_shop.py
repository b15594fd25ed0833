"""A shop in the middle of its day: records of every status, some of them troubling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count

from oncekey import Once, Policy
from oncekey.core.requests import Claim
from oncekey.stores import SQLiteStore

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class CardDeclinedError(Exception):
    """What the shop keeps and raises again."""


class Day:
    """The clock of a store that is being filled: it goes where it is put."""

    def __init__(self) -> None:
        self.back = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 - self.back


def fill(path: str) -> None:
    """The file holds what a shop has done in the last hours."""
    day = Day()
    store = SQLiteStore(path, clock=day)
    policy = Policy(keep=CardDeclinedError, on_crash="hold", heartbeat=False, ttl="24h")
    once = Once(store, policy=policy, observers=())
    for ago, happens in sorted(_happenings(once, store, day), key=lambda one: -one[0]):
        day.back = ago
        happens()
    store.close()


def _happenings(
    once: Once, store: SQLiteStore, day: Day
) -> Iterator[tuple[int, Callable[[], object]]]:
    for ago, number in _arrivals():
        yield ago, partial(_work, once, number)
    yield 3 * HOUR + 11 * MINUTE, partial(_unknown, once, day, 80611, "no answer within 10 s")
    yield 52 * MINUTE, partial(_unknown, once, day, 80627, "the bank reset the connection")
    yield 7 * MINUTE, partial(_unknown, once, day, 80666, "no answer within 10 s")
    yield 40 * SECOND, partial(store.claim, _running(80671))
    yield 4 * SECOND, partial(store.claim, _running(80673))


def _running(number: int) -> Claim:
    return Claim(
        "billing",
        f"charge:{number}",
        nonce="n",
        fingerprint=None,
        lease=5 * MINUTE,
        ttl=24 * HOUR,
        label="charge",
    )


def _arrivals() -> Iterator[tuple[int, int]]:
    ago = 9 * HOUR
    for number in count(80200):
        yield ago, number
        ago -= (37 + number * 7919 % 260) * SECOND
        if ago < 20 * SECOND:
            return


def _work(once: Once, number: int) -> None:
    kind = number * 31 % 17
    if kind == 3:
        receipts = once.options(scope="mail", label="receipt")
        receipts.run(f"receipt:{number}:ann%40example.com", _answer, sent=True)
    elif kind in (5, 6):
        hooks = once.options(scope="stripe", label="invoice.paid")
        hooks.run(f"evt_1P{number * 7919 % 10**9:09d}", _answer, handled=True)
    elif kind == 9 and number % 3 == 0:
        with suppress(CardDeclinedError):
            once.options(scope="billing", label="charge").run(f"charge:{number}", _decline)
    elif kind == 11 and number % 2:
        imports = once.options(scope="imports", label="nightly")
        with suppress(ValueError), imports.attempt(f"catalogue:{number}") as attempt:
            attempt.note(upload=f"up-{number}")
            raise ValueError("row 17 has no price")
    else:
        charges = once.options(scope="billing", label="charge")
        charges.run(f"charge:{number}", _answer, id=f"pay_{number}", amount=number % 90 * 50)


def _answer(**facts: str | int | bool) -> dict[str, str | int | bool]:
    return facts


def _decline() -> None:
    raise CardDeclinedError("insufficient funds")


def _unknown(once: Once, day: Day, number: int, words: str) -> None:
    charges = once.options(scope="billing", label="charge", reference=f"order {number}")
    with suppress(TimeoutError), charges.attempt(f"charge:{number}") as attempt:
        attempt.note(bank_request=f"req-{number * 13}", amount=4900)
        attempt.step("reserve stock", _answer, shelf="B7")
        day.back -= 10 * SECOND
        raise TimeoutError(words)
