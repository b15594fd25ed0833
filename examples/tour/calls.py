"""Steps about calls that end: the first, its replay, many at once, another order, a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from examples.tour.shop import Order, Receipt, bank, once
from examples.tour.step import Fact, Step
from oncekey import KeyReusedError, Outcome

# 1. The first call


@once("charge:{order.id}", scope="shop")
def charge(order: Order) -> Receipt:
    return Receipt(bank.book(order.id), order.amount)


def first_call() -> Receipt:
    return charge(Order("A-1", 40))


def first_facts(receipt: Receipt) -> Iterator[Fact]:
    yield Fact(f"charge(...) returned {receipt}", receipt == Receipt("bank-1", 40))
    yield Fact("the bank booked A-1 once", bank.times("A-1") == 1)


FIRST = Step(
    title="The first call runs",
    uses=(charge.__wrapped__,),
    scene=first_call,
    facts=first_facts,
    why="The key was claimed in the store before the function ran, and its result was kept after.",
)

# 2. The replay


def replay() -> Outcome[Receipt]:
    return charge.outcome(Order("A-1", 40))  # a retry, a second click, a redelivery


def replay_facts(again: Outcome[Receipt]) -> Iterator[Fact]:
    yield Fact(f"duplicate is {again.duplicate}", again.duplicate)
    yield Fact(f"value is {again.value}", again.value == Receipt("bank-1", 40))
    yield Fact(
        f"and its type is {type(again.value).__name__}, not dict", type(again.value) is Receipt
    )
    yield Fact("the bank still booked A-1 once", bank.times("A-1") == 1)


REPLAY = Step(
    title="The same call again is answered, not run",
    scene=replay,
    facts=replay_facts,
    why="The record answers. It is decoded to the return annotation: a Receipt of its own.",
)

# 3. Concurrent callers


@once("slow-charge:{order.id}", scope="shop")
def slow_charge(order: Order) -> Receipt:
    time.sleep(0.2)
    return Receipt(bank.book(order.id), order.amount)


@once("slow-charge:{order.id}", scope="shop")
async def slow_charge_async(order: Order) -> Receipt:
    await asyncio.sleep(0.2)
    return Receipt(bank.book(order.id), order.amount)


def concurrent_callers() -> tuple[list[Outcome[Receipt]], list[Outcome[Receipt]]]:
    with ThreadPoolExecutor(16) as pool:
        threads = list(pool.map(slow_charge.outcome, [Order("B-2", 15)] * 16))

    async def many() -> list[Outcome[Receipt]]:
        return await asyncio.gather(
            *(slow_charge_async.outcome(Order("C-3", 25)) for _ in range(64))
        )

    return threads, asyncio.run(many())


def concurrent_facts(
    seen: tuple[list[Outcome[Receipt]], list[Outcome[Receipt]]],
) -> Iterator[Fact]:
    for order, kind, outcomes in zip(("B-2", "C-3"), ("threads", "tasks"), seen, strict=True):
        ran = [one for one in outcomes if not one.duplicate]
        receipts = {one.value.number for one in outcomes}
        yield Fact(
            f"{len(outcomes)} {kind}: {len(ran)} ran, all got receipt {', '.join(receipts)}",
            len(ran) == 1 and len(receipts) == 1,
        )
        yield Fact(f"the bank booked {order} once", bank.times(order) == 1)


CONCURRENT = Step(
    title="Many callers at the same time",
    uses=(slow_charge.__wrapped__, slow_charge_async.__wrapped__),
    scene=concurrent_callers,
    facts=concurrent_facts,
    why="One claim is granted. The others wait for its end and are answered by the record.",
)

# 4. The key with other arguments


def other_amount() -> Exception | None:
    try:
        charge(Order("A-1", 4000))
    except KeyReusedError as error:
        return error
    return None


def other_facts(error: Exception | None) -> Iterator[Fact]:
    yield Fact(f"{type(error).__name__}: {error}", isinstance(error, KeyReusedError))
    yield Fact("the bank booked A-1 once, over 40", bank.times("A-1") == 1)


OTHER = Step(
    title="The same key for something else is refused",
    scene=other_amount,
    facts=other_facts,
    why="A record holds a fingerprint of the arguments. A key never changes its meaning.",
)

# 5. A failure that is kept


class CardDeclinedError(Exception):
    """The bank said no, and will say no again."""


@once("card:{order.id}", scope="shop", keep=(CardDeclinedError,))
def charge_card(order: Order) -> Receipt:
    bank.book(order.id)
    raise CardDeclinedError("limit", order.amount)


def kept_failure() -> list[Exception]:
    seen: list[Exception] = []
    for _ in range(2):
        try:
            charge_card(Order("D-4", 900))
        except CardDeclinedError as error:
            seen.append(error)
    return seen


def kept_facts(seen: list[Exception]) -> Iterator[Fact]:
    yield Fact(
        f"both calls raised {seen[-1]!r}",
        [error.args for error in seen] == [("limit", 900)] * 2,
    )
    yield Fact("the bank was asked once", bank.times("D-4") == 1)


KEPT = Step(
    title="A failure can be the answer",
    uses=(charge_card.__wrapped__,),
    scene=kept_failure,
    facts=kept_facts,
    why="keep= names the errors that are final. After any other error the next call runs again.",
)
