"""Whether the answer of a late call is refused: tried on each side before it is measured.

A call is running when its record goes away, as it does when its time is over. A second call of the
same key takes its place, as another process would. Whatever the order in which they end, the answer
that is kept must be the second one's.
"""

from __future__ import annotations

import logging
from asyncio import Runner
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from bench.peers.functions import Blocking, Bodies, Opener
from bench.subject import new_order
from tests.patience import PATIENCE


def refuses_late_answers(opener: Opener, url: str, forget: Callable[[], object]) -> bool:
    """Whether the second answer is kept when the first comes after it, and when before."""
    logging.disable()  # a side may tell of it, and we ask for it
    try:
        return all(_kept(opener, url, forget, late=late) == "second" for late in (True, False))
    finally:
        logging.disable(logging.NOTSET)


def _kept(opener: Opener, url: str, forget: Callable[[], object], *, late: bool) -> str:
    """The answer that a third call gets. Late: the first ends after the second, else before."""
    order = new_order()
    runs, first_ended = Event(), Event()

    def second_body(_order: str, _amount: int) -> str:
        runs.set()
        assert late or first_ended.wait(PATIENCE)
        return "second"

    def second_call() -> None:
        with _calls(opener, url, second_body) as call:
            call(order, 40)

    second = Thread(target=second_call)

    def first_body(_order: str, _amount: int) -> str:
        forget()
        second.start()
        assert runs.wait(PATIENCE)
        if late:
            second.join(PATIENCE)
        return "first"

    with _calls(opener, url, first_body) as call:
        with suppress(Exception):  # it may say that it lost its place
            call(order, 40)
        first_ended.set()
        second.join(PATIENCE)
    with _calls(opener, url, lambda _order, _amount: "third") as call:
        return call(order, 40)


@contextmanager
def _calls(opener: Opener, url: str, body: Blocking) -> Iterator[Blocking]:
    """A side of its own, as another process would have it, called by whoever blocks."""

    async def waiting(order: str, amount: int) -> str:
        return body(order, amount)

    def blocking(order: str, amount: int) -> str:
        return body(order, amount)

    with Runner() as runner, opener(url, Bodies(blocking, waiting), runner) as ways:

        async def one(order: str, amount: int) -> str:
            assert ways.waiting is not None
            return await ways.waiting(order, amount)

        yield ways.blocking or (lambda order, amount: runner.run(one(order, amount)))
