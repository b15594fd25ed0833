"""Events: what publishing costs, how long an event takes to a browser, and how many may watch."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import redis
import redis.asyncio

from bench.cases.events_app import DOMAIN, PLAIN, STAGES
from bench.cases.events_redis import events_redis_rows
from bench.cases.http_server import Answering
from bench.redis_server import Server
from bench.report.rows import Row
from bench.settings import Settings
from bench.timing import Side, Spread, Tick, Timings, interleave, without_collector
from oncekey.events import AsyncBus
from tests.patience import PATIENCE

_LEAST_SPEED: Final = 2.5
_MOST_COST: Final = 4
_MOST_MEMORY: Final = 300
_MOST_SHARE: Final = 0.1
_PER_SECOND: Final = 100
_LENGTH: Final = 10_000
_ROOT: Final = Path(__file__).parents[2]
_PLACE: Final = re.compile(rb"^id: \w+\.(\d+)\.", re.MULTILINE)
_DATA: Final = {"status": "running", "text": "x" * 100, "done": 17}
_BODY: Final = json.dumps(
    {
        "job_id": "job-00000001",
        "domain": DOMAIN,
        "stage": "work",
        "seq": 1,
        "data": _DATA,
        "timestamp": "2026-01-01T00:00:00.000000+00:00",
    }
)
_numbers = count(1)


def events_rows(server: Server | None, settings: Settings, tick: Tick) -> list[Row]:
    """Three rows, or what is missing to measure them."""
    if server is None:
        rows = [_publish(None, settings), _latency(None), _crowd(None, settings), _unwatched(None)]
        return rows + events_redis_rows(None, settings, tick)
    url = f"redis://127.0.0.1:{server.port}/0"
    published = _publishing(url, settings, tick)
    _forget(url)  # a router would have to go through all of it
    with ExitStack() as opened:
        for part in ("bare", "router"):
            opened.enter_context(routing(part, url))
        answering = opened.enter_context(gateway(url))
        took = asyncio.run(_carried(url, answering.port, settings, tick))
        crowd = asyncio.run(_watched(url, answering, settings))
        unwatched = asyncio.run(_not_watched(url, answering, settings))
    tick()
    costs = events_redis_rows(server, settings, tick)
    _forget(url)  # others use the server
    rows = [_publish(published, settings), _latency(took), _crowd(crowd, settings)]
    return [*rows, _unwatched(unwatched), *costs]


def _forget(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushall()


def _bus(url: str) -> AsyncBus:
    return AsyncBus(url, domain=DOMAIN, stages=STAGES, length=_LENGTH, most=10**9)


def _publishing(url: str, settings: Settings, tick: Tick) -> Timings:
    """Tasks that publish at once, ten events for a job."""
    with asyncio.Runner() as runner:
        raw = redis.asyncio.Redis.from_url(url)
        bus = _bus(url)

        async def plain(calls: int) -> None:
            for _ in range(calls):
                fields = cast("Any", {"data": _BODY})
                await raw.xadd("bare", fields, maxlen=_LENGTH, approximate=True)

        async def ours(calls: int) -> None:
            for _ in range(calls):
                number = next(_numbers)
                assert await bus.publish(f"job-{number // 10:08}", "work", _DATA, seq=number)

        def side(task: Any) -> Side:
            async def together(calls: int) -> None:
                each = calls // settings.tasks
                await asyncio.gather(*(task(each) for _ in range(settings.tasks)))

            return Side(
                lambda calls: runner.run(together(calls)), settings.tasks * settings.each // 2
            )

        sides = {"raw": side(plain), "publish": side(ours)}
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        runner.run(raw.aclose())
        runner.run(bus.aclose())
    return timings


async def _carried(url: str, port: int, settings: Settings, tick: Tick) -> Timings:
    """The median time of one event at a time, round by round, to whoever waits for it."""
    timings = Timings({"bare": [], "events": []})
    job = "latency"
    async with redis.asyncio.Redis.from_url(url) as raw, _bus(url) as bus, raw.pubsub() as ears:
        await ears.subscribe(PLAIN)
        browser = await Browser(job).visit(port)

        async def bare() -> None:
            await raw.xadd(PLAIN, {"data": _BODY}, maxlen=_LENGTH, approximate=True)
            while (told := await ears.get_message(timeout=PATIENCE)) is None or (
                told["type"] != "message"
            ):
                pass

        async def events() -> None:
            browser.came.clear()
            await bus.publish(job, "work", _DATA, seq=next(_numbers))
            await browser.came.wait()

        async def median(side: str) -> float:
            took = []
            for _ in range(settings.commits):
                start = time.perf_counter()
                await {"bare": bare, "events": events}[side]()
                took.append(time.perf_counter() - start)
            return statistics.median(took)

        async with asyncio.timeout(PATIENCE):
            for number in range(-1, settings.rounds):  # the first is to warm up
                for side in reversed(timings) if number % 2 else timings:
                    with without_collector():
                        figure = await median(side)
                    if number >= 0:
                        timings[side].append(figure)
                        tick()
        browser.leave()
        assert not browser.wrong, browser.wrong
    return timings


class _Crowd(NamedTuple):
    lost: int
    """How many did not come, came twice or out of order."""
    late: float
    """Seconds after the last event until everybody had it."""
    memory: float | None


async def _watched(url: str, answering: Answering, settings: Settings) -> _Crowd:
    """Browsers of one job, for which an event comes every hundredth of a second."""
    clients, events = settings.duplicates // 2, settings.commits * 10
    async with _bus(url) as bus:
        await bus.publish("crowd", "work", _DATA, seq=0)
        browsers = [await Browser("crowd").visit(answering.port) for _ in range(clients)]
        start = time.perf_counter()
        for number in range(1, events):
            await asyncio.sleep(max(0.0, start + number / _PER_SECOND - time.perf_counter()))
            await bus.publish("crowd", "work", _DATA, seq=number)
        last = time.perf_counter()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for browser in browsers:
                    await browser.until(events)
        late = time.perf_counter() - last
        for browser in browsers:
            browser.leave()
    lost = sum(events - one.seen + one.wrong for one in browsers)
    return _Crowd(lost, late, answering.memory())


async def _not_watched(
    url: str, answering: Answering, settings: Settings
) -> tuple[float, float] | None:
    """Return the processor time of a gateway for an event that nobody watches there.

    And that for one which one client watches.
    """
    events = settings.tasks * settings.each
    costs = []
    async with _bus(url) as bus:
        for job in ("others", "watched"):
            browser = await Browser("watched").visit(answering.port)
            start, before = next(_numbers), answering.cpu()
            for number in range(start, start + events):
                await bus.publish(
                    f"{job}-{start}" if job == "others" else job, "work", _DATA, seq=number
                )
            if job == "watched":
                async with asyncio.timeout(PATIENCE):
                    await browser.until(events)
            else:
                await asyncio.sleep(0.5)  # for what would still come
            after = answering.cpu()
            if before is None or after is None:
                return None
            costs.append((after - before) / events)
            for _ in range(events):
                next(_numbers)
            browser.leave()
    return costs[0], costs[1]


def _publish(timings: Timings | None, settings: Settings) -> Row:
    speed = None if timings is None else timings.speed("publish", "raw")
    return Row(
        id="events-publish",
        title=f"Events, publish, {settings.tasks} tasks",
        value=0.0 if timings is None else 1 / timings.per_call("publish"),
        unit="calls/s",
        against="redis-py, XADD MAXLEN ~, which knows no duplicates",
        against_value=None if timings is None else 1 / timings.per_call("raw"),
        ratio=speed,
        target=f"at least {_LEAST_SPEED}x",
        met=None if speed is None else speed.median >= _LEAST_SPEED,
        remark=_NO_SERVER if timings is None else "",
    )


def _latency(timings: Timings | None) -> Row:
    cost = None if timings is None else timings.cost("events", "bare")
    return Row(
        id="events-latency",
        title="Events, from the worker through router and gateway to an SSE client, p50",
        value=0.0 if timings is None else timings.per_call("events") * 1e6,
        unit="µs",
        against="redis-py, XADD, XREADGROUP, PUBLISH, subscriber",
        against_value=None if timings is None else timings.per_call("bare") * 1e6,
        ratio=cost,
        target=f"at most {_MOST_COST}x",
        met=None if cost is None else cost.median <= _MOST_COST,
        remark=_NO_SERVER if timings is None else "",
    )


def _crowd(crowd: _Crowd | None, settings: Settings) -> Row:
    clients, events = settings.duplicates // 2, settings.commits * 10
    memory = None if crowd is None else crowd.memory
    return Row(
        id="events-crowd",
        title=f"Events, memory of a gateway with {clients} SSE clients, {_PER_SECOND} events/s",
        value=memory or 0.0,
        unit="MiB",
        target=f"under {_MOST_MEMORY}, none lost",
        met=None if crowd is None or memory is None else memory < _MOST_MEMORY and crowd.lost == 0,
        remark=_NO_SERVER
        if crowd is None
        else f"{crowd.lost} of {clients * events:,} were lost, came twice or out of order; the "
        f"last client had the last one after {crowd.late:.2f} s",
    )


def _unwatched(costs: tuple[float, float] | None) -> Row:
    share = None if costs is None else costs[0] / costs[1]
    return Row(
        id="events-unwatched",
        title="Events, processor of a gateway for one that nobody watches there",
        value=0.0 if costs is None else costs[0] * 1e6,
        unit="µs",
        against="one that a client watches",
        against_value=None if costs is None else costs[1] * 1e6,
        ratio=None if share is None else Spread(share, share, share),
        target=f"at most {_MOST_SHARE}x",
        met=None if share is None else share <= _MOST_SHARE,
        remark=_NO_SERVER if costs is None else "",
    )


_NO_SERVER: Final = "no redis-server was found, or the system tells nothing of processes"


# Routers and gateways for the time of a run, and browsers that watch a job


@contextmanager
def started(*words: str, passed: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A part of `bench.cases.events_app`; afterwards it is gone."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.cases.events_app", *words],
        cwd=_ROOT,
        env=os.environ,
        pass_fds=[] if passed is None else [passed],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def routing(part: str, url: str) -> Iterator[None]:
    """A router that is ready."""
    with started(part, url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", f"the {part} of the bench did not start"
        yield


@contextmanager
def gateway(url: str) -> Iterator[Answering]:
    """A gateway, which listens from the start and answers when it is ready."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        number, port = listening.fileno(), listening.getsockname()[1]
        with started("gateway", url, str(number), passed=number) as process:
            yield Answering(port, process.pid)


class Browser(asyncio.Protocol):
    """Counts the events of a job, which must come each once and in order."""

    def __init__(self, job: str) -> None:
        self.seen = 0
        self.wrong = 0
        """How many came that were not the next one."""
        self.open = asyncio.Event()
        self.came = asyncio.Event()
        self._job = job
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    async def visit(self, port: int) -> Browser:
        """Connected, and told so by the gateway."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", port)
        self._transport.write(f"GET /{self._job} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        async with asyncio.timeout(PATIENCE):
            await self.open.wait()
        return self

    async def until(self, events: int) -> None:
        """So many have come."""
        while self.seen < events:
            self.came.clear()
            await self.came.wait()

    def leave(self) -> None:
        """The connection is cut."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Whole lines are read; each id is the place of an event."""
        self.open.set()
        text = self._rest + data
        end = text.rfind(b"\n") + 1
        self._rest = text[end:]
        for place in _PLACE.findall(text, 0, end):
            self.wrong += int(place) != self.seen + 1
            self.seen += 1
        self.came.set()
