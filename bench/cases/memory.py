"""Without a round trip: the CPU time of a whole protected call, against that of one redis-py GET.

New keys and duplicates of the memory store, and duplicates that the local cache before Redis has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Final

import redis

from bench.cores import Cores, on_one_core
from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order, protect
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once
from oncekey.functions import Protected

_MOST_CPU: Final = {"new": 0.35, "cached": 0.2}
_TITLES: Final = {
    "new": "Memory, new key",
    "duplicate": "Memory, duplicate",
    "cached": "Redis, duplicate from the local cache",
}


def memory(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """CPU of this process and all its threads; the server's own is not in it."""
    with closing(Once("memory://")) as once, on_one_core() as cores, ExitStack() as opened:
        charge, order = protect(once), new_order()
        answer = charge(order, 40)

        def new(calls: int) -> None:
            for _ in range(calls):
                charge(new_order(), 40)

        sides = {
            "new": Side(new, settings.cpu),
            "duplicate": Side(_duplicates(charge, order), settings.cpu),
        }
        if server is not None:
            client = opened.enter_context(redis.Redis(host="127.0.0.1", port=server.port))
            client.set(order, answer)
            assert client.get(order) == answer.encode()
            for name, get in _gets(client, order, server, cores).items():
                sides[name] = Side(get, settings.cpu)
            cached = opened.enter_context(closing(Once(f"redis://127.0.0.1:{server.port}/0")))
            work = _duplicates(protect(cached), new_order())
            before = _asked(client)
            work(settings.cpu)
            assert _asked(client) - before < settings.cpu, "the local cache has them all"
            sides["cached"] = Side(work, settings.cpu)
        timings = interleave(sides, rounds=settings.rounds, tick=tick, clock=time.process_time)
        assert charge.outcome(order, 40).duplicate
    return [_row(timings, side) for side in _TITLES]


def _asked(client: redis.Redis) -> int:
    """How many commands the server has answered so far."""
    return int(client.info("stats")["total_commands_processed"])


def _duplicates(charge: Protected[[str, int], str], order: str) -> Callable[[int], None]:
    """Calls of an order that is settled already."""
    charge(order, 40)
    assert charge.outcome(order, 40).duplicate

    def work(calls: int) -> None:
        for _ in range(calls):
            charge(order, 40)

    return work


def _gets(
    client: redis.Redis, key: str, server: Server, cores: Cores | None
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

    return {
        "get": after(cores.mover(server.pid, cores.other)),
        "get beside": after(cores.mover(server.pid, cores.here)),
    }


def _row(timings: Timings, side: str) -> Row:
    most = _MOST_CPU.get(side)
    cost = timings.cost(side, "get") if "get" in timings else None
    return Row(
        id=f"memory-{side}",
        title=f"{_TITLES[side]}, CPU time",
        value=timings.per_call(side) * 1e6 if side in timings else 0.0,
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
