"""An open breaker: what a call that runs unprotected takes, against one raw GET of a living server.

The store is a Redis that is not there. After a few misses the breaker knows it, and a call in open
mode runs without asking anybody. What such runs leave to do until the store returns is the keeper's
business. It goes on beside the measurement, as it does in life, and after it: this row comes last.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import redis

from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order, receipt
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once, StoreError

_MISSES: Final = 3


def breaker_row(server: Server | None, settings: Settings, tick: Tick) -> Row:
    """Time of a whole call, the code that it protects included."""
    timings = None if server is None else _timings(server, settings, tick)
    return Row(
        id="breaker-open",
        title="Redis out of reach, breaker open, open mode",
        value=0.0 if timings is None else timings.per_call("call") * 1e6,
        unit="µs",
        against="redis-py, one GET on loopback",
        against_value=None if timings is None else timings.per_call("get") * 1e6,
        ratio=None if timings is None else timings.cost("call", "get"),
        target="less than 1x",
        met=None if timings is None else _less_than_both(timings),
        remark=_remark(timings),
    )


def _timings(server: Server, settings: Settings, tick: Tick) -> Timings:
    with (
        redis.Redis(host="127.0.0.1", port=server.port) as client,
        _port_where_nobody_listens() as port,
        closing(Once(f"redis://127.0.0.1:{port}/0", observers=())) as once,
    ):
        client.set("order", "receipt")

        def gets(calls: int) -> None:
            for _ in range(calls):
                client.get("order")

        def unprotected(calls: int) -> None:
            for _ in range(calls):
                charge(new_order(), 40)

        get = Side(gets, settings.counted)
        alone = interleave({"get alone": get}, rounds=settings.rounds, tick=tick)
        _open_the_breaker(once)
        charge = once("charge:{order}", scope="bench", fail_mode="open")(receipt)
        sides = {"get": get, "call": Side(unprotected, settings.counted)}
        return Timings(alone | interleave(sides, rounds=settings.rounds, tick=tick))


def _open_the_breaker(once: Once) -> None:
    for _ in range(_MISSES):
        try:
            once.run(new_order(), receipt, "order", 40)
        except StoreError:
            continue
        msg = "a server answers where nobody listens"
        raise AssertionError(msg)


def _less_than_both(timings: Timings) -> bool:
    return timings.per_call("call") < min(timings.per_call("get"), timings.per_call("get alone"))


def _remark(timings: Timings | None) -> str:
    if timings is None:
        return "no redis-server was found"
    alone = timings.per_call("get alone") * 1e6
    return f"before the breaker opened, with the keeper idle, a GET took {alone:.3g} µs"


@contextmanager
def _port_where_nobody_listens() -> Iterator[int]:
    """It is bound, so that no other program comes to listen there meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
