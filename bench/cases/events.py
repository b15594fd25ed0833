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
from oncekey.events import AsyncBus, Draft
from tests.patience import PATIENCE

_LEAST_SPEED: Final = 2.5
_MOST_COST: Final = 4
_MOST_MEMORY: Final = 300
_MOST_SHARE: Final = 0.1
_MOST_WAIT: Final = 1
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
        rows = [_publish(None, settings), _latency(None), _crowd(None, settings)]
        rows += [_storm(None, settings), _unwatched(None)]
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
        storm = asyncio.run(_come_back(url, answering.port, settings))
        unwatched = asyncio.run(_not_watched(url, answering, settings))
    tick()
    costs = events_redis_rows(server, settings, tick)
    _forget(url)  # others use the server
    rows = [_publish(published, settings), _latency(took), _crowd(crowd, settings)]
    return [*rows, _storm(storm, settings), _unwatched(unwatched), *costs]


def _forget(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushall()


def _bus(url: str) -> AsyncBus:
    return AsyncBus(url, domain=DOMAIN, stages=STAGES, length=_LENGTH, most=10**9)


class _Publishing(NamedTuple):
    timings: Timings
    cpu: dict[str, list[float]]
    """Seconds of processor that this process takes for an event, round by round."""


def _publishing(url: str, settings: Settings, tick: Tick) -> _Publishing:
    """Tasks that publish at once, ten events for a job."""
    cpu: dict[str, list[float]] = {"raw": [], "publish": []}
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

        def side(name: str, task: Any) -> Side:
            async def together(calls: int) -> None:
                each = calls // settings.tasks
                await asyncio.gather(*(task(each) for _ in range(settings.tasks)))

            def measured(calls: int) -> None:
                before = time.process_time()
                runner.run(together(calls))
                cpu[name].append((time.process_time() - before) / calls)

            return Side(measured, settings.tasks * settings.each // 2)

        sides = {"raw": side("raw", plain), "publish": side("publish", ours)}
        timings = interleave(sides, rounds=settings.rounds, tick=tick)
        runner.run(raw.aclose())
        runner.run(bus.aclose())
    return _Publishing(timings, cpu)


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


class _Storm(NamedTuple):
    calm: list[float]
    """Seconds that a live client waits for an event, one by one."""
    waits: list[float]
    """The same while the others come back."""
    seconds: float
    """Until all of them have everything."""


async def _come_back(url: str, port: int, settings: Settings) -> _Storm:
    """Clients that come back at once, each from a place of its own, while another one is live."""
    clients, job = settings.duplicates // 2, "storm"
    async with _bus(url) as bus:
        events = clients * 4
        for first in range(0, events, 100):
            numbers = range(first, min(events, first + 100))
            await bus.publish_batch([Draft(job, "work", _DATA, seq=n) for n in numbers])
        places: list[str] = []
        while len(places) < events:
            page = await bus.read(job, after=places[-1] if places else None)
            places += [event.id for event in page.events]
        browser = await Browser(job, after=places[-1], seen=events).visit(port)
        number = count(events)

        async def wait() -> float:
            browser.came.clear()
            start, last = time.perf_counter(), next(number)
            await bus.publish(job, "work", _DATA, seq=last)
            await browser.until(last + 1)
            return time.perf_counter() - start

        async with asyncio.timeout(PATIENCE):
            calm = [await wait() for _ in range(settings.commits)]
            with started("storm", str(port), job, *places[::4], places[-1]) as others:
                assert others.stdout is not None
                assert await asyncio.to_thread(others.stdout.readline) == "ready\n"
                start, waits = time.perf_counter(), list[float]()
                while others.poll() is None or not waits:
                    waits.append(await wait())
                    await asyncio.sleep(0.005)
                seconds = time.perf_counter() - start
                assert others.returncode == 0, "the clients that came back broke off"
        browser.leave()
        assert not browser.wrong, browser.wrong
    return _Storm(calm, waits, seconds)


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


def _publish(published: _Publishing | None, settings: Settings) -> Row:
    timings = None if published is None else published.timings
    speed = None if timings is None else timings.speed("publish", "raw")
    remark = _NO_SERVER
    if published is not None:
        ours, raw = (statistics.median(published.cpu[name]) for name in ("publish", "raw"))
        remark = (
            f"of processor time, which the load of a machine changes less, this process takes "
            f"{1e6 * ours:.1f} µs for an event and {1e6 * raw:.1f} µs for an XADD, "
            f"{raw / ours:.2f}x"
        )
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
        remark=remark,
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


def _storm(storm: _Storm | None, settings: Settings) -> Row:
    clients = settings.duplicates // 2
    longest = 0.0 if storm is None else max(storm.waits)
    return Row(
        id="events-storm",
        title=f"Events, longest wait of a live client while {clients} others come back",
        value=longest,
        unit="s",
        target=f"under {_MOST_WAIT}",
        met=None if storm is None else longest < _MOST_WAIT,
        remark=_NO_SERVER
        if storm is None
        else f"the median of {len(storm.waits)} events was {_ms(storm.waits)}, without the others "
        f"{_ms(storm.calm)}; after {storm.seconds:.1f} s they had their "
        f"{2 * clients * (clients + 1):,} events",
    )


def _ms(waits: list[float]) -> str:
    return f"{1e3 * statistics.median(waits):.1f} ms"


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

    def __init__(self, job: str, *, after: str = "", seen: int = 0) -> None:
        self.seen = seen
        self.wrong = 0
        """How many came that were not the next one."""
        self.open = asyncio.Event()
        self.came = asyncio.Event()
        self._address = f"/{job}?after={after}" if after else f"/{job}"
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    async def visit(self, port: int) -> Browser:
        """Connected, and told so by the gateway."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", port)
        self._transport.write(f"GET {self._address} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
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
