"""The step in which nobody knows what happened, until a human says so."""

from __future__ import annotations

from collections.abc import Iterator

from examples.tour.shop import Order, Receipt, bank, once
from examples.tour.step import Fact, Step
from oncekey import OutcomeUnknownError


@once("wire:{order.id}", scope="shop", on_crash="hold")
def wire(order: Order) -> Receipt:
    bank.book(order.id)
    raise TimeoutError("the bank did not answer")  # it has booked, but this process cannot know


def hold_and_resolve() -> tuple[list[Exception], str, Receipt]:
    order, seen = Order("E-5", 70), list[Exception]()
    for _ in range(2):
        try:
            wire(order)
        except (TimeoutError, OutcomeUnknownError) as error:
            seen.append(error)
    record = wire.record(order)
    status = record.status if record else "none"
    # Somebody calls the bank, and hears that the money was moved.
    once.resolve(wire.key(order), scope="shop", result=Receipt("by phone", 70))
    return seen, status, wire(order)


def hold_facts(seen: tuple[list[Exception], str, Receipt]) -> Iterator[Fact]:
    errors, status, receipt = seen
    names = [type(error).__name__ for error in errors]
    yield Fact(f"the first call raised {names[0]}, the second {names[-1]}", len(set(names)) == 2)
    yield Fact(f"the record was {status}", status == "held")
    yield Fact(f"after resolve the call answers {receipt}", receipt == Receipt("by phone", 70))
    yield Fact("the bank booked E-5 once", bank.times("E-5") == 1)


HOLD = Step(
    title="Outcome unknown: held, and resolved by hand",
    uses=(wire.__wrapped__,),
    scene=hold_and_resolve,
    facts=hold_facts,
    why="A time-out does not say whether the effect happened. Under on_crash='hold' nothing "
    "runs again before somebody has found out.",
)
