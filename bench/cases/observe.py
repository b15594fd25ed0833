"""Observers: what a protected call on Redis costs with Prometheus, against one without observers.

Both sides are the same calls on the same server, so their quotient is what the observer adds.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from prometheus_client import CollectorRegistry

from bench.cores import on_one_core
from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order, protect
from bench.timing import Side, Tick, Timings, interleave
from oncekey import Once
from oncekey.observe.prometheus import PrometheusObserver

_MOST_COST: Final = 1.05


def observe_rows(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """Times of one caller. The local cache is off, so that every duplicate asks the server."""
    timings = None if server is None else _timings(server, settings, tick)
    return [
        _row(timings, "new", "new key"),
        _row(timings, "duplicate", "duplicate, cache off"),
    ]


def _timings(server: Server, settings: Settings, tick: Tick) -> Timings:
    url = f"redis://127.0.0.1:{server.port}/0"
    registry = CollectorRegistry()
    with (
        on_one_core() as cores,
        closing(Once(url, cache=False, observers=())) as off,
        closing(Once(url, cache=False, observers=[PrometheusObserver(registry)])) as on,
    ):
        if cores is not None:
            cores.mover(server.pid, cores.other)()
        sides = {
            f"{side} {name}": Side(work, settings.reads)
            for name, once in (("off", off), ("on", on))
            for side, work in _works(once).items()
        }
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        assert registry.get_sample_value("idempotency_check_total", {"result": "duplicate"})
    return timings


def _works(once: Once) -> dict[str, Callable[[int], None]]:
    charge, order = protect(once), new_order()
    charge(order, 40)

    def new(calls: int) -> None:
        for _ in range(calls):
            charge(new_order(), 40)

    def answers(calls: int) -> None:
        for _ in range(calls):
            charge(order, 40)

    return {"new": new, "duplicate": answers}


def _row(timings: Timings | None, side: str, title: str) -> Row:
    cost = None if timings is None else timings.cost(f"{side} on", f"{side} off")
    return Row(
        id=f"observe-{side}",
        title=f"Redis with Prometheus, {title}, 1 caller",
        value=0.0 if timings is None else timings.per_call(f"{side} on") * 1e6,
        unit="µs",
        against="the same without observers",
        against_value=None if timings is None else timings.per_call(f"{side} off") * 1e6,
        ratio=cost,
        target=f"at most {_MOST_COST}x",
        met=None if cost is None else cost.median <= _MOST_COST,
        remark="no redis-server was found" if timings is None else "",
    )
