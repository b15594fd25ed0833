"""Routers are killed and paused, Redis is killed: no event is lost, doubled or out of order."""

import asyncio
import random
import signal

import pytest

from oncekey import StoreError
from oncekey.events import AsyncBus, Bus, Event, Resync, Router, Stages
from tests.processes.spawning import spawn_of
from tests.surfaces.events.ways import collected

__all__ = ["spawn_of"]

MODULE = "tests.surfaces.events.router_worker"
MANY = Stages({"work": (1, 9999)})


def step(url):
    router = Router(url, domain="scan", claim_after="1ms")
    router.step()
    router.close()


@pytest.mark.row("E3", "E7")
async def test_routers_that_are_killed_and_paused_lose_nothing(empty_redis, spawn_of):
    """Two routers; one is killed again and again, one is paused past its claim."""
    jobs, each, retries = [f"job-{n}" for n in range(30)], 100, random.Random(7)  # noqa: S311 - no secret

    def start():
        worker = spawn_of(MODULE, empty_redis.url, "200ms")
        worker.until("ready")
        return worker

    steady, victim = start(), start()
    async with AsyncBus(empty_redis.url, domain="scan", stages=MANY) as bus:
        watching = [asyncio.create_task(collected(bus, job, each)) for job in jobs]
        for number in range(1, each + 1):
            for job in jobs:
                await bus.publish(job, "work", number, seq=number)
                if retries.random() < 0.3:
                    assert not await bus.publish(job, "work", number, seq=number)
            if number % 30 == 0:
                victim.process.kill()
                assert victim.process.wait() == -signal.SIGKILL
                victim = await asyncio.to_thread(start)
            if number % 40 == 0:
                steady.signal(signal.SIGSTOP)
            elif number % 40 == 20:
                steady.signal(signal.SIGCONT)
        steady.signal(signal.SIGCONT)
        for found in await asyncio.gather(*watching):
            assert [event.seq for event in found] == list(range(1, each + 1))
        for worker in (steady, victim):
            worker.signal(signal.SIGTERM)
            assert await asyncio.to_thread(worker.process.wait, 20) == 0
        await asyncio.to_thread(step, empty_redis.url)
        assert [(await bus.state(job)).seq for job in jobs] == [each] * len(jobs)
    with empty_redis.client() as client:
        streams = [f"{{scan:{shard}}}:events" for shard in range(4)]
        assert [client.xpending(name, "router")["pending"] for name in streams] == [0] * 4
        assert sum(client.xlen(name) for name in streams) == len(jobs) * each
        assert not client.keys("*:dead")


@pytest.mark.row("E7")
async def test_a_watcher_that_hears_nothing_still_gets_everything(empty_redis, monkeypatch):
    """600 events, 30 % published twice, and nobody wakes the watcher for 100 of them."""
    monkeypatch.setattr("oncekey.events.bus.PATIENCE", 0.1)
    retries = random.Random(11)  # noqa: S311 - no secret
    async with (
        AsyncBus(empty_redis.url, domain="scan", stages=MANY) as bus,
        AsyncBus(empty_redis.url, domain="scan", stages=MANY) as watcher,
    ):
        watching = asyncio.create_task(collected(watcher, "job-1", 600))
        for number in range(1, 601):
            await bus.publish("job-1", "work", number, seq=number)
            if retries.random() < 0.3:
                assert not await bus.publish("job-1", "work", number, seq=number)
            if 300 < number <= 400:
                with empty_redis.client() as client:
                    client.client_kill_filter(_type="pubsub")
            if number % 10 == 0 and number != 600:  # the last nudge is lost, too
                await asyncio.to_thread(step, empty_redis.url)
        found = await watching
    assert [event.seq for event in found] == list(range(1, 601))


@pytest.mark.row("E7")
async def test_a_redis_that_was_killed_comes_back_with_every_event(another_redis):
    server = another_redis(appendonly="yes", appendfsync="always")
    bus, watcher = (AsyncBus(server.url, domain="scan", stages=MANY) for _ in range(2))
    watching = asyncio.create_task(collected(watcher, "job-1", 60))
    for number in range(1, 61):
        if number % 20 == 0:
            server.kill()
            assert server.process.returncode == -signal.SIGKILL
            await asyncio.to_thread(server.start)
        while True:
            try:
                await bus.publish("job-1", "work", number, seq=number)
            except StoreError:  # on a connection to the old one
                continue
            break
    await asyncio.to_thread(step, server.url)
    found = await watching
    assert [event.seq for event in found] == list(range(1, 61))
    await bus.aclose()
    await watcher.aclose()


@pytest.mark.row("E7")
async def test_a_redis_that_lost_everything_is_a_resync(another_redis):
    server = another_redis()
    async with AsyncBus(server.url, domain="scan", stages=MANY) as bus:
        watching = asyncio.create_task(collected(bus, "job-1", 4))
        for number in (1, 2):
            await bus.publish("job-1", "work", number, seq=number)
        await asyncio.to_thread(step, server.url)
        [first] = await collected(bus, "job-1", 1)
        server.kill()
        assert server.process.returncode == -signal.SIGKILL
        await asyncio.to_thread(server.start)
        found = await collected(bus, "job-1", 1, after=first.cursor)
        assert found == [Resync("epoch")]
        with Bus(server.url, domain="scan", stages=MANY) as other:
            other.publish("job-1", "work", 3, seq=3)
        await asyncio.to_thread(step, server.url)
        found = [one.seq if isinstance(one, Event) else one for one in await watching]
        assert found == [1, 2, Resync("epoch"), 3]


@pytest.mark.row("E7")
async def test_a_replica_that_lost_the_newest_events_is_a_resync(another_redis):
    primary = another_redis()
    replica = another_redis(replicaof=f"127.0.0.1 {primary.port}")
    with Bus(primary.url, domain="scan", stages=MANY) as bus, replica.client() as other:
        with primary.client() as client:
            for number in (1, 2, 3):
                bus.publish("job-1", "work", number, seq=number)
            while not client.wait(1, 100):
                pass
        other.replicaof("NO", "ONE")  # from here on it misses what the primary accepts
        kept = bus.read("job-1").cursor
        for number in (4, 5):
            bus.publish("job-1", "work", number, seq=number)
        lost = bus.read("job-1").cursor
    primary.kill()
    assert primary.process.returncode == -signal.SIGKILL
    with Bus(replica.url, domain="scan", stages=MANY) as bus:
        assert bus.read("job-1", after=lost).resync == Resync("mark")
        assert bus.read("job-1", after=kept) == ([], kept, None)
        for number in (6, 7):
            bus.publish("job-1", "work", number, seq=number)
        page = bus.read("job-1", after=lost)
        assert page.resync == Resync("mark"), "the same offset, and another event"
        assert page.events[-1].offset == lost.offset
        assert page.events[-1].id != str(lost)
        assert [event.seq for event in page.events] == [1, 2, 3, 6, 7]
        assert [event.seq for event in bus.read("job-1", after=kept).events] == [6, 7]
