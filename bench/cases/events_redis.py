"""Events: what they cost Redis, a router, and a gateway in which nobody watches them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import redis

from bench.cases.events_app import DOMAIN, STAGES
from bench.cases.http_server import Answering
from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.timing import Tick, spread_of
from oncekey.events import Bus, Draft, Router

_MOST_CPU: Final = 2.5
_MOST_MEMORY: Final = 1.4
_LEAST_ROUTED: Final = 0.7
_EVENTS_OF_A_JOB: Final = 9
_BATCH: Final = 90
_DATA: Final = {"status": "running", "text": "x" * 100, "done": 17}
_SEED: Final = """
if redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', '10000', '*', 'data', ARGV[1])
redis.call('SETEX', KEYS[2], ARGV[2], ARGV[1])
redis.call('SETEX', KEYS[3], ARGV[3], '1')
return 1
"""
"""A marker, an entry and a state, for which it takes three keys."""
_NO_SERVER: Final = "no redis-server was found, or the system tells nothing of processes"


class _Round(NamedTuple):
    """What one round cost: seconds of Redis, bytes, and entries per second."""

    seed_cpu: float
    our_cpu: float
    seed_memory: float
    our_memory: float
    routed: float
    bare: float


def events_redis_rows(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """Three rows, or what is missing to measure them."""
    if server is None:
        return _rows([], 0)
    events = max(900, settings.tasks * settings.each // _BATCH * _BATCH)
    rounds = []
    for _ in range(max(2, settings.rounds)):
        rounds.append(_round(server, events))
        tick()
    return _rows(rounds, events)


def _round(server: Server, events: int) -> _Round:
    process = Answering(server.port, server.pid)
    client: Any
    with redis.Redis(port=server.port) as client:

        def used() -> float:
            """Return the bytes of the keys. Connections of ours would have buffers."""
            while client.info("clients")["connected_clients"] > connected:
                time.sleep(0.001)
            return float(client.info("memory")["used_memory"])

        connected = client.info("clients")["connected_clients"]

        client.flushall()
        start, before = used(), process.cpu() or 0.0
        _publish_as_the_seed(client, events)
        seed_cpu, seed_memory = (process.cpu() or 0.0) - before, used() - start
        client.flushall()
        url = f"redis://127.0.0.1:{server.port}/0"
        start = used()
        router = Router(url, domain=DOMAIN)
        with Bus(url, domain=DOMAIN, stages=STAGES, most=10**9) as bus:
            router.step()
            before = process.cpu() or 0.0
            for drafts in _drafts(events):
                bus.publish_batch(drafts)
            began = time.perf_counter()
            routed = router.step() / (time.perf_counter() - began)
            our_cpu = (process.cpu() or 0.0) - before
        router.close()
        our_memory = used() - start
        client.flushall()
        bare = _route_bare(client, events)
        client.flushall()
    return _Round(seed_cpu, our_cpu, seed_memory, our_memory, routed, bare)


def _drafts(events: int) -> Iterator[list[Draft]]:
    for first in range(0, events, _BATCH):
        places = [divmod(n, _EVENTS_OF_A_JOB) for n in range(first, first + _BATCH)]
        yield [Draft(f"job-{job:08}", "work", _DATA, seq=seq) for job, seq in places]


def _publish_as_the_seed(client: Any, events: int) -> None:
    name: Any = client.script_load(_SEED)
    for drafts in _drafts(events):
        line = client.pipeline(transaction=False)
        for job, stage, data, seq, _ in drafts:
            body = {"job_id": job, "domain": DOMAIN, "stage": stage, "seq": seq, "data": data}
            body["timestamp"] = "2026-01-01T00:00:00.000000+00:00"
            keys = (f"events:{int(job[-1]) % 4}", f"state:{job}", f"published:{job}:{stage}:{seq}")
            line.evalsha(name, 3, *keys, json.dumps(body, separators=(",", ":")), 3600, 7200)
        line.execute()


def _route_bare(client: Any, events: int) -> float:
    """Return how many entries per second a loop reads, passes on and acknowledges, in pipelines."""
    body = json.dumps({"data": _DATA, "pad": "x" * 100})
    for _ in range(0, events, _BATCH):
        line = client.pipeline(transaction=False)
        for _ in range(_BATCH):
            line.xadd("bare", {"data": body})
        line.execute()
    client.xgroup_create("bare", "router", "0")
    began = time.perf_counter()
    while found := client.xreadgroup("router", "a", {"bare": ">"}, count=100):
        line = client.pipeline(transaction=False)
        for name, fields in found[0][1]:
            line.publish("bare", fields[b"data"])
            line.xack("bare", "router", name)
        line.execute()
    return events / (time.perf_counter() - began)


def _rows(rounds: list[_Round], events: int) -> list[Row]:
    each = max(1, events)
    cpu = [(1e6 * one.our_cpu / each, 1e6 * one.seed_cpu / each) for one in rounds]
    memory = [(one.our_memory / each, one.seed_memory / each) for one in rounds]
    return [
        _row(
            ("events-redis-cpu", "Events, processor of Redis to publish and route", "µs"),
            "a script that sets a marker, an entry and a state",
            cpu,
            most=_MOST_CPU,
        ),
        _row(
            ("events-redis-memory", "Events, memory of Redis, jobs of 9", "bytes"),
            "the same script's keys",
            memory,
            most=_MOST_MEMORY,
        ),
        _row(
            ("events-router", "Events, one router", "entries/s"),
            "redis-py, XREADGROUP, then PUBLISH and XACK in pipelines",
            [(one.routed, one.bare) for one in rounds],
            least=_LEAST_ROUTED,
        ),
    ]


def _row(
    words: tuple[str, str, str],
    against: str,
    figures: list[tuple[float, float]],
    *,
    most: float = 0.0,
    least: float = 0.0,
) -> Row:
    name, title, unit = words
    target = f"at least {least}x" if least else f"at most {most}x"
    if not figures:
        return Row(
            id=name,
            title=title,
            value=0.0,
            unit=unit,
            against=against,
            target=target,
            remark=_NO_SERVER,
        )
    ratio = spread_of([mine / theirs for mine, theirs in figures])
    return Row(
        id=name,
        title=title,
        value=spread_of([mine for mine, _ in figures]).median,
        unit=unit,
        against=against,
        against_value=spread_of([theirs for _, theirs in figures]).median,
        ratio=ratio,
        target=target,
        met=ratio.median >= least if least else ratio.median <= most,
    )
