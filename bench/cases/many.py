"""Many callers of one process on Redis and PostgreSQL, against the raw commands of a driver's pool.

A stale settle is tried on every store that is measured here: none of them is fast by being open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import redis
import redis.asyncio
from msgspec.structs import replace
from psycopg_pool import AsyncConnectionPool

from bench.redis_server import Server
from bench.report.rows import Row, rate_row
from bench.settings import Settings
from bench.subject import new_order, protect, protect_async
from bench.timing import Side, Tick, Timings, interleave, without_collector
from oncekey import Once
from oncekey.core.requests import Claim, Settle, Verdict
from oncekey.stores import Store, open_store
from tests.servers.postgres import binaries, serving

_DAY: Final = 86_400_000
_LEASE: Final = 300_000
_KEPT: Final = b"receipt of an order over 40"
_CONNECTIONS: Final = 16
_CLAIM: Final = "INSERT INTO done VALUES (%s, 'running') ON CONFLICT DO NOTHING"
_SETTLE: Final = "UPDATE done SET status = 'completed', result = %s WHERE key = %s"
_TABLE: Final = "CREATE TABLE done (key text PRIMARY KEY, status text NOT NULL, result bytea)"

Work = Callable[[str], Awaitable[Any]]


class Tasks:
    """One loop, whose tasks share the calls of a round."""

    def __init__(self, count: int) -> None:
        """The loop is there before the clock runs."""
        self.count = count
        self.runner = asyncio.Runner()

    def side(self, work: Work, calls: int, orders: list[str] | None = None) -> Side:
        """`work` is called with new orders, or each task with one of these, which is its own.

        If two asked for the same one at once, one of them would follow the other.
        """

        async def task(number: int, share: int) -> None:
            known = None if orders is None else orders[number % len(orders)]
            for _ in range(share):
                await work(known or new_order())

        async def tasks(made: int) -> None:
            share = max(1, made // self.count)
            await asyncio.gather(*(task(number, share) for number in range(self.count)))

        return Side(lambda made: self.runner.run(tasks(made)), calls)


def fenced(store: Store) -> None:
    """A settle with an old token is refused, or nothing is measured."""
    ask = Claim("bench", new_order(), nonce="n", fingerprint=None, lease=10**8, ttl=10**8)
    record = store.claim(ask).record
    end = Settle(
        "bench",
        record.key,
        token=record.token,
        nonce="n",
        status="completed",
        result=b"",
        error=None,
        ttl=10**8,
    )
    assert store.settle(replace(end, token=record.token - 1)) is Verdict.LOST
    assert store.settle(end) is Verdict.DONE


def redis_many(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """Rates of threads and of tasks. The local cache is off."""
    timings, costs = (None, {}) if server is None else _redis(server, settings, tick)
    pair, read = "redis-py, SET NX PX + SET PX, unfenced", "redis-py, GET"
    threads, tasks = f"{settings.threads} threads", f"{settings.tasks} tasks"
    rows = [
        ("redis-new-threads", f"new key, {threads}", pair, 2.2),
        ("redis-new-tasks", f"new key, {tasks}", pair, 4.5),
        ("redis-duplicate-tasks", f"duplicate, {tasks}", read, 4.0),
    ]
    return [_row(timings, *row, costs=costs) for row in rows]


class Cost(NamedTuple):
    """Microseconds of processor that a call takes, the least of some rounds."""

    client: float
    server: float


def _cost(side: Side, asks: redis.Redis, rounds: int) -> Cost:
    def used() -> tuple[float, float]:
        cpu = asks.info("cpu")
        return time.process_time(), cpu["used_cpu_user"] + cpu["used_cpu_sys"]

    found: list[Cost] = []
    for _ in range(rounds):
        with without_collector():
            client, server = used()
            side.work(side.calls)
            over = used()
        per_call = 1e6 / side.calls
        found.append(Cost((over[0] - client) * per_call, (over[1] - server) * per_call))
    return Cost(min(cost.client for cost in found), min(cost.server for cost in found))


def _redis(server: Server, settings: Settings, tick: Tick) -> tuple[Timings, dict[str, Cost]]:
    url = f"redis://127.0.0.1:{server.port}/0"
    calls = settings.threads * settings.each
    with ExitStack() as opened:
        raw = opened.enter_context(redis.Redis.from_url(url))
        pool = opened.enter_context(ThreadPoolExecutor(settings.threads))
        once = Once(url, cache=False)
        fenced(opened.enter_context(closing(open_store(url))))
        charge, charge_async = protect(once), protect_async(once)
        tasks = Tasks(settings.tasks)
        raw_async = redis.asyncio.Redis.from_url(url)

        def threaded(work: Callable[[], object]) -> Side:
            def share(count: int) -> None:
                for _ in range(count):
                    work()

            def threads(made: int) -> None:
                list(pool.map(share, [made // settings.threads] * settings.threads))

            return Side(threads, calls)

        def pair() -> None:
            key = new_order()
            raw.set(key, b"running", nx=True, px=_LEASE)
            raw.set(key, _KEPT, px=_DAY)

        async def pair_async(key: str) -> None:
            await raw_async.set(key, b"running", nx=True, px=_LEASE)
            await raw_async.set(key, _KEPT, px=_DAY)

        known = [new_order() for _ in range(settings.tasks)]
        for order in known:
            raw.set(order, charge(order, 40))
        sides = {
            "raw redis-new-threads": threaded(pair),
            "redis-new-threads": threaded(lambda: charge(new_order(), 40)),
            "raw redis-new-tasks": tasks.side(pair_async, calls),
            "redis-new-tasks": tasks.side(lambda order: charge_async(order, 40), calls),
            "raw redis-duplicate-tasks": tasks.side(raw_async.get, calls, known),
            "redis-duplicate-tasks": tasks.side(
                lambda order: charge_async(order, 40), calls, known
            ),
        }
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        costs = {name: _cost(side, raw, settings.rounds) for name, side in sides.items()}
        tasks.runner.run(raw_async.aclose())
        tasks.runner.run(once.aclose())
        tasks.runner.close()
        once.close()
    return timings, costs


def postgres_many(folder: Path, settings: Settings, tick: Tick) -> list[Row]:
    """The rate of tasks, whose claims and settles share commits."""
    try:
        binaries()
    except RuntimeError:
        timings = None
    else:
        timings = _postgres(folder, settings, tick)
    raw = f"raw psycopg, prepared INSERT + UPDATE, pool of {_CONNECTIONS}"
    return [_row(timings, "postgres-new-tasks", f"new key, {settings.tasks} tasks", raw, 4.0)]


def _postgres(folder: Path, settings: Settings, tick: Tick) -> Timings:
    calls = settings.threads * settings.each
    tasks = Tasks(settings.tasks)
    with serving(beside=folder.parent, durable=True) as server:
        url = server.new_database()
        pool = AsyncConnectionPool(
            url, min_size=_CONNECTIONS, kwargs={"autocommit": True}, open=False
        )
        once = Once(url, cache=False)
        charge = protect_async(once)

        async def prepare() -> None:
            await pool.open(wait=True)
            async with pool.connection() as connection:
                await connection.execute(_TABLE)

        async def pair(key: str) -> None:
            async with pool.connection() as connection:
                await connection.execute(_CLAIM, (key,), prepare=True)
            async with pool.connection() as connection:
                await connection.execute(_SETTLE, (_KEPT, key), prepare=True)

        tasks.runner.run(prepare())
        with closing(open_store(url)) as store:
            fenced(store)
        sides = {
            "raw postgres-new-tasks": tasks.side(pair, calls),
            "postgres-new-tasks": tasks.side(lambda order: charge(order, 40), calls),
        }
        timings = interleave(sides, rounds=max(2, settings.rounds // 2), tick=tick)
        tasks.runner.run(once.aclose())
        tasks.runner.run(pool.close())
        tasks.runner.close()
        once.close()
    return timings


def _row(
    timings: Timings | None,
    side: str,
    title: str,
    against: str,
    least: float,
    *,
    costs: Mapping[str, Cost] = {},
) -> Row:
    store = "Redis" if side.startswith("redis") else "PostgreSQL"
    remark = "a stale settle was tried and refused" if timings else "no server was found"
    if costs:
        mine, raw = costs[side], costs[f"raw {side}"]
        remark += (
            f"; a call takes {mine.client:.1f} µs of the client's processor and {mine.server:.1f} "
            f"of the server's, a raw one {raw.client:.1f} and {raw.server:.1f}"
        )
    return rate_row(
        timings,
        side,
        id_=side,
        title=f"{store}, {title}",
        against=against,
        remark=remark,
        least=least,
    )
