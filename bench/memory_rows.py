"""The memory store: CPU time of a whole protected call, against that of one redis-py GET."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final

import redis

from bench.cores import mover, on_one_core
from bench.interleave import Side, Tick, Timings, interleave
from bench.redis_server import Server
from bench.row import Row
from bench.settings import Settings
from bench.subject import new_order, protect
from oncekey import Once

_MOST_CPU: Final = 0.5


def memory(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """CPU of this process and all its threads; the server's own is not in it."""
    with closing(Once("memory://")) as once, on_one_core() as cores, ExitStack() as opened:
        charge, order = protect(once), new_order()
        answer = charge(order, 40)

        def new(calls: int) -> None:
            for _ in range(calls):
                charge(new_order(), 40)

        def answers(calls: int) -> None:
            for _ in range(calls):
                charge(order, 40)

        sides = {"new": Side(new, settings.cpu), "duplicate": Side(answers, settings.cpu)}
        if server is not None:
            client = opened.enter_context(redis.Redis(host="127.0.0.1", port=server.port))
            client.set(order, answer)
            assert client.get(order) == answer.encode()
            for name, get in _gets(client, order, server, cores).items():
                sides[name] = Side(get, settings.cpu)
        timings = interleave(sides, rounds=settings.rounds, tick=tick, clock=time.process_time)
        assert charge.outcome(order, 40).duplicate
    return [
        _row(timings, "new", "new key", _MOST_CPU),
        _row(timings, "duplicate", "duplicate"),
    ]


def _gets(
    client: redis.Redis, key: str, server: Server, cores: tuple[int, int] | None
) -> dict[str, Callable[[int], None]]:
    """The baseline: the server on another core, as it is in life, and beside us on ours."""

    def gets(calls: int) -> None:
        for _ in range(calls):
            client.get(key)

    if cores is None:
        return {"get": gets}

    def after(move: Callable[[], None]) -> Callable[[int], None]:
        def moved(calls: int) -> None:
            move()
            gets(calls)

        return moved

    here, other = cores
    return {"get": after(mover(server.pid, other)), "get beside": after(mover(server.pid, here))}


def _row(timings: Timings, side: str, title: str, most: float | None = None) -> Row:
    cost = timings.cost(side, "get") if "get" in timings else None
    return Row(
        id=f"memory-{side}",
        title=f"Memory, {title}, CPU time",
        value=timings.per_call(side) * 1e6,
        unit="µs",
        against="redis-py, one GET on loopback",
        against_value=None if cost is None else timings.per_call("get") * 1e6,
        ratio=cost,
        target="" if most is None else f"at most {most}x",
        met=None if most is None or cost is None else cost.median <= most,
        remark=_remark(timings, side),
    )


def _remark(timings: Timings, side: str) -> str:
    if "get" not in timings:
        return "no redis-server was found"
    if "get beside" not in timings:
        return "client and server were not bound to cores"
    return (
        f"the server runs on another core than the client; bound to the client's own core, where "
        f"a GET is cheapest, it took {timings.per_call('get beside') * 1e6:.3g} µs, and the ratio "
        f"was {timings.cost(side, 'get beside').median:.2f}x"
    )
