"""A million deliveries to 500 clients of a gateway, 100 of which read nothing most of the time.

`python -m pytest -s tests/system/sse/test_crowd.py` tells the figures.
"""

import asyncio
import re

import pytest

from bench.cases.events import gateway, routing
from bench.cases.events_app import DOMAIN, STAGES
from oncekey.events import AsyncBus, Draft
from tests.patience import PATIENCE
from tests.servers.redis_fixtures import empty_redis, redis_server

__all__ = ["empty_redis", "redis_server"]

CLIENTS, STALLED, EVENTS, BATCH = 500, 100, 2_500, 25
TEXT = "x" * 2000
PLACE = re.compile(rb"^id: (\w+\.(\d+)\.\w+)$", re.MULTILINE)


class Client(asyncio.Protocol):
    """Comes back with the id of its last event, as a browser does."""

    def __init__(self, port):
        self.port, self.offsets, self.last = port, [], b""
        self.resyncs = self.visits = 0
        self.stalled = False
        self.transport = None
        self.rest = b""

    async def visit(self):
        loop = asyncio.get_running_loop()
        self.rest = b""
        self.visits += 1
        self.transport, _ = await loop.create_connection(lambda: self, "127.0.0.1", self.port)
        named = b"Last-Event-ID: %s\r\n" % self.last if self.last else b""
        self.transport.write(b"GET /crowd HTTP/1.1\r\nHost: here\r\n%s\r\n" % named)
        if self.stalled:
            self.transport.pause_reading()

    def wake(self):
        self.stalled = False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def leave(self):
        if self.transport is not None:
            self.transport.abort()

    def data_received(self, data):
        text = self.rest + data
        end = text.rfind(b"\n\n") + 1
        if end > 0:
            self.rest = text[end:]
            self.resyncs += text.count(b"event: resync", 0, end)
            for name, offset in PLACE.findall(text, 0, end):
                self.offsets.append(int(offset))
                self.last = name
        else:
            self.rest = text
        if b"0\r\n\r\n" in text[-16:]:  # the response has ended
            self.transport.abort()

    def connection_lost(self, _):
        self.transport = None


async def come_back(clients):
    """Whoever was let go and has not everything comes back."""
    for client in clients:
        if client.transport is None and len(client.offsets) < EVENTS:
            await client.visit()


@pytest.mark.row("E5", "E7")
async def test_none_is_lost_twice_or_out_of_order_and_the_gateway_stays_small(empty_redis):
    most = 0.0
    with routing("router", empty_redis.url), gateway(empty_redis.url) as answering:
        clients = [Client(answering.port) for _ in range(CLIENTS)]
        async with (
            asyncio.timeout(PATIENCE),
            AsyncBus(empty_redis.url, domain=DOMAIN, stages=STAGES) as bus,
        ):
            for number, client in enumerate(clients):
                client.stalled = number < STALLED
                await client.visit()
            for first in range(0, EVENTS, BATCH):
                numbers = range(first, first + BATCH)
                await bus.publish_batch([Draft("crowd", "work", TEXT, seq=n) for n in numbers])
                await asyncio.sleep(0.05)
                most = max(most, answering.memory() or 0.0)
                await come_back(clients)
            for client in clients:
                client.wake()
            while behind := [one for one in clients if len(one.offsets) < EVENTS]:
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:  # the test has waited long enough
                    gone = sum(one.transport is None for one in behind)
                    print(f"{len(behind)} clients lack events, {gone} are not connected")  # noqa: T201 - why it fails
                    raise
                most = max(most, answering.memory() or 0.0)
                await come_back(clients)
        for client in clients:
            client.leave()
    came = sum(len(client.offsets) for client in clients)
    visits = sum(client.visits for client in clients[:STALLED])
    wrong = sum(client.offsets != list(range(1, EVENTS + 1)) for client in clients)
    print(f"{came:,} deliveries, {STALLED} stalled clients connected {visits} times,", end=" ")  # noqa: T201 - what the command tells
    print(f"{wrong} of {CLIENTS} clients lack, repeat or mix events; gateway {most:.0f} MiB")  # noqa: T201 - the same
    assert wrong == 0
    assert sum(client.resyncs for client in clients) == 0
    assert visits > STALLED, "none was let go"
    assert 0 < most < 200, f"{most:.0f} MiB"
