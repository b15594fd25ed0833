"""Celery: what deduplication adds to sending a job, and what protection takes from a worker.

Broker, records and the locks of the peers are on one Redis. A job is sent with everything that
Celery does for it; the duplicates are jobs that wait in the queue already. The worker has one
process, its jobs do nothing, and they wait in the queue before the clock starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any, Final

import redis

from bench.cases.jobs_app import ADDRESS, DONE, GO, READY, make
from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.subject import new_order
from bench.timing import Side, Spread, Tick, Timings, interleave, without_collector
from tests.patience import PATIENCE

PEERS: Final = ("celery-singleton", "celery-once")
_MOST_COST: Final = 1.0
_LEAST_SPEED: Final = 0.7


def jobs_rows(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """Three rows, or what is missing to measure them."""
    sent = None if server is None else _sending(server, settings, tick)
    return [
        _sent_row(sent, "new", "a job is sent"),
        _sent_row(sent, "duplicate", "a duplicate is not sent"),
        _worker_row(None if server is None else _working(server, settings, tick)),
    ]


@contextmanager
def _tasks(server: Server) -> Iterator[dict[str, Any]]:
    """The tasks by name. Afterwards their queues and records are gone: others use the server."""
    app, once = make(f"redis://127.0.0.1:{server.port}")
    try:
        yield app.tasks
    finally:
        app.close()
        once.close()
        with redis.Redis(port=server.port) as client:
            client.flushall()


def _sending(server: Server, settings: Settings, tick: Tick) -> Timings | None:
    with _tasks(server) as tasks:
        if not all(peer in tasks for peer in PEERS):
            return None
        sides = {}
        for name in ("ours", *PEERS):
            sides[f"new {name}"] = Side(_sends(tasks[name], new_order), settings.commits)
            again = cycle([new_order()]).__next__
            sides[f"duplicate {name}"] = Side(_sends(tasks[name], again), settings.commits)
        return interleave(sides, rounds=settings.rounds, tick=tick)


def _sends(task: Any, order: Callable[[], str]) -> Callable[[int], None]:
    def work(calls: int) -> None:
        for _ in range(calls):
            task.delay(order=order())

    return work


def _working(server: Server, settings: Settings, tick: Tick) -> Timings:
    timings = Timings({"bare": [], "protected": []})
    with (
        _tasks(server) as tasks,
        _worker(server),
        redis.Redis(port=server.port, socket_timeout=None) as signals,
    ):

        def seconds(name: str, calls: int) -> float:
            """How long the worker takes for each of so many jobs that wait for it."""
            tasks["wait"].delay()
            assert signals.blpop([READY], PATIENCE)
            for _ in range(calls):
                tasks[name].delay(order=new_order())
            tasks["end"].delay()
            start = time.perf_counter()
            signals.rpush(GO, "")
            assert signals.blpop([DONE], PATIENCE)
            return (time.perf_counter() - start) / calls

        for name in timings:
            seconds(name, settings.commits)
        for number in range(settings.rounds):
            for name in reversed(timings) if number % 2 else timings:
                with without_collector():
                    timings[name].append(seconds(name, settings.commits))
                tick()
    return timings


@contextmanager
def _worker(server: Server) -> Iterator[None]:
    """A worker with one process, as the command line starts it."""
    words = [sys.executable, "-m", "celery", "-A", "bench.cases.jobs_app", "worker", "-c", "1"]
    quiet = ["--loglevel=ERROR", "--without-mingle", "--without-gossip"]
    process = subprocess.Popen(
        [*words, *quiet],
        env={**os.environ, ADDRESS: f"redis://127.0.0.1:{server.port}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _sent_row(timings: Timings | None, side: str, title: str) -> Row:
    costs = (
        {}
        if timings is None
        else {peer: timings.cost(f"{side} ours", f"{side} {peer}") for peer in PEERS}
    )
    worst = max(costs, key=lambda peer: costs[peer].median, default=PEERS[0])
    return Row(
        id=f"jobs-enqueue-{side}",
        title=f"Celery, {title}, deduplicated at enqueue",
        value=0.0 if timings is None else timings.per_call(f"{side} ours") * 1e6,
        unit="µs",
        against=f"{worst}, the same task",
        against_value=None if timings is None else timings.per_call(f"{side} {worst}") * 1e6,
        ratio=costs.get(worst),
        target=f"at most {_MOST_COST}x",
        met=costs[worst].median <= _MOST_COST if costs else None,
        remark=_others(costs, worst)
        if costs
        else "celery-once and celery-singleton are not installed",
    )


def _others(costs: dict[str, Spread], worst: str) -> str:
    return "; ".join(f"{peer}: {cost.median:.2f}x" for peer, cost in costs.items() if peer != worst)


def _worker_row(timings: Timings | None) -> Row:
    speed = None if timings is None else timings.speed("protected", "bare")
    return Row(
        id="jobs-worker",
        title="Celery, no-op jobs of one worker process, by_task_id",
        value=0.0 if timings is None else 1 / timings.per_call("protected"),
        unit="calls/s",
        against="the same worker, unprotected jobs",
        against_value=None if timings is None else 1 / timings.per_call("bare"),
        ratio=speed,
        target=f"at least {_LEAST_SPEED}x",
        met=None if speed is None else speed.median >= _LEAST_SPEED,
        remark="no redis-server was found" if timings is None else "no result back end, early ack",
    )
