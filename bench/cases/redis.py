"""Redis: a new key and a duplicate, against the raw commands of redis-py on the same server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

import redis

from bench.cores import Cores, on_one_core
from bench.redis_server import Server
from bench.report.rows import Row, rate_row
from bench.settings import Settings
from bench.subject import new_order, protect
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once

_LEAST_SPEED: Final = {"new": 1.05, "duplicate": 1.0}
_DAY: Final = 86_400_000
_LEASE: Final = 300_000
_RAW: Final = {
    "new": "redis-py, SET NX PX + SET PX, unfenced",
    "duplicate": "redis-py, GET",
}


def redis_rows(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """Rates of one caller. The local cache is off, so that every duplicate asks the server."""
    timings = None if server is None else _timings(server, settings, tick)
    return [
        _row(timings, "new", "new key"),
        _row(timings, "duplicate", "duplicate, cache off"),
    ]


def _timings(server: Server, settings: Settings, tick: Tick) -> Timings:
    url = f"redis://127.0.0.1:{server.port}/0"
    with (
        on_one_core() as cores,
        redis.Redis.from_url(url) as raw,
        closing(Once(url, cache=False)) as once,
    ):
        charge, order = protect(once), new_order()
        raw.set(order, charge(order, 40))

        def pairs(calls: int) -> None:
            for _ in range(calls):
                key = new_order()
                assert raw.set(key, b"running", nx=True, px=_LEASE)
                raw.set(key, b"receipt of an order over 40", px=_DAY)

        def gets(calls: int) -> None:
            for _ in range(calls):
                raw.get(order)

        def new(calls: int) -> None:
            for _ in range(calls):
                charge(new_order(), 40)

        def answers(calls: int) -> None:
            for _ in range(calls):
                charge(order, 40)

        works = {"raw new": pairs, "new": new, "raw duplicate": gets, "duplicate": answers}
        sides = {
            f"{side}{where}": Side(_after(move, work), settings.reads)
            for where, move in _places(server, cores).items()
            for side, work in works.items()
        }
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        assert charge.outcome(order, 40).duplicate
    return timings


def _places(server: Server, cores: Cores | None) -> dict[str, Callable[[], None]]:
    """The server on another core, as it is in life, and beside us on ours."""
    if cores is None:
        return {"": lambda: None}
    return {
        "": cores.mover(server.pid, cores.other),
        " beside": cores.mover(server.pid, cores.here),
    }


def _after(move: Callable[[], None], work: Callable[[int], None]) -> Callable[[int], None]:
    def moved(calls: int) -> None:
        move()
        work(calls)

    return moved


def _row(timings: Timings | None, side: str, title: str) -> Row:
    return rate_row(
        timings,
        side,
        id_=f"redis-{side}",
        title=f"Redis, {title}, 1 caller",
        against=_RAW[side],
        remark=_remark(timings, side),
        least=_LEAST_SPEED[side],
    )


def _remark(timings: Timings | None, side: str) -> str:
    if timings is None:
        return "no redis-server was found"
    if f"{side} beside" not in timings:
        return "client and server were not bound to cores"
    raw = f"raw {side} beside"
    return (
        f"the server runs on another core than the client; bound to the client's own core the raw "
        f"side makes {1 / timings.per_call(raw):,.0f} calls/s, and the ratio was "
        f"{timings.speed(f'{side} beside', raw).median:.2f}x"
    )
