"""Routers are killed and paused, Redis is killed: no event is lost, doubled or out of order."""

import asyncio
import random
import signal

import pytest

from oncekey import StoreError
from oncekey.events import AsyncBus, Bus, Event, Gateway, Resync, Router, Stages
from tests.events.browsers import Browser, serving
from tests.events.ways import collected
from tests.heavy import HEAVY
from tests.patience import PATIENCE, until
from tests.processes.child_processes import spawn_of

__all__ = ["spawn_of"]

MODULE = "tests.events.router_worker"
MANY = Stages({"work": (1, 9999)})
# 30 jobs: 9,000 events in half a minute, or 1,200 in three seconds.
EACH, SECONDS, KILL_EVERY = (300, 30, 2.0) if HEAVY else (40, 3, 1.0)


def step(url):
    router = Router(url, domain="scan", claim_after="1ms")
    router.step()
    router.close()


@pytest.mark.row("E3", "E7")
async def test_routers_that_are_killed_and_paused_lose_nothing(empty_redis, spawn_of):
    """Two routers; one is killed again and again, one is paused past its claim."""
    jobs, each, retries = [f"job-{n}" for n in range(30)], EACH, random.Random(7)  # noqa: S311 - no secret
    ended, kills = asyncio.Event(), []

    def start():
        worker = spawn_of(MODULE, empty_redis.url, "200ms")
        worker.until("ready")
        return worker

    async def kill_again_and_again():
        while not ended.is_set():
            due = asyncio.get_running_loop().time() + KILL_EVERY
            victim = await asyncio.to_thread(start)
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            victim.process.kill()
            kills.append(await asyncio.to_thread(victim.process.wait))

    async def pause_again_and_again():
        while not ended.is_set():
            await asyncio.sleep(KILL_EVERY)
            steady.signal(signal.SIGSTOP)
            await asyncio.sleep(3 * 0.2)  # the other one takes what it had
            steady.signal(signal.SIGCONT)

    steady = start()
    async with AsyncBus(empty_redis.url, domain="scan", stages=MANY) as bus:
        watching = [asyncio.create_task(collected(bus, job, each)) for job in jobs]
        trouble = [asyncio.create_task(kill_again_and_again())]
        trouble.append(asyncio.create_task(pause_again_and_again()))
        begun = asyncio.get_running_loop().time()
        for number in range(1, each + 1):
            await asyncio.gather(*(bus.publish(job, "work", number, seq=number) for job in jobs))
            for job in jobs:
                if retries.random() < 0.3:
                    assert not await bus.publish(job, "work", number, seq=number)
            due = begun + number * SECONDS / each
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        ended.set()
        await asyncio.gather(*trouble)
        for found in await asyncio.gather(*watching):
            assert [event.seq for event in found] == list(range(1, each + 1))
        assert set(kills) == {-signal.SIGKILL}
        assert len(kills) >= (10 if HEAVY else 1)
        steady.signal(signal.SIGTERM)
        assert await asyncio.to_thread(steady.process.wait, PATIENCE) == 0
        await asyncio.to_thread(step, empty_redis.url)
        assert [(await bus.state(job)).seq for job in jobs] == [each] * len(jobs)
    with empty_redis.client() as client:
        streams = [f"{{scan:{shard}}}:events" for shard in range(4)]
        assert [client.xpending(name, "router")["pending"] for name in streams] == [0] * 4
        assert sum(client.xlen(name) for name in streams) == len(jobs) * each
        assert not client.keys("*:dead")


@pytest.mark.row("E7")
async def test_watchers_that_hear_nothing_still_get_everything(empty_redis, monkeypatch):
    """600 events, 30 % published twice, and nobody wakes the gateway for 100 of them."""
    monkeypatch.setattr("oncekey.events.subscription.PATIENCE", 0.1)
    retries, again = random.Random(11), 0  # noqa: S311 - no secret
    async with (
        AsyncBus(empty_redis.url, domain="scan", stages=MANY) as bus,
        AsyncBus(empty_redis.url, domain="scan", stages=MANY) as watcher,
        asyncio.timeout(PATIENCE),
        serving(Gateway(watcher, allow=None)) as port,
    ):
        browser = Browser(port, "job-1")
        watching = asyncio.create_task(collected(watcher, "job-1", 600))
        visiting = asyncio.create_task(browser.visit(until=600))
        for number in range(1, 601):
            await bus.publish("job-1", "work", number, seq=number)
            if retries.random() < 0.3:
                again += 1
                assert not await bus.publish("job-1", "work", number, seq=number)
            if 300 < number <= 400:
                with empty_redis.client() as client:
                    client.client_kill_filter(_type="pubsub")
            if number % 10 == 0 and number != 600:  # the last nudge is lost, too
                await asyncio.to_thread(step, empty_redis.url)
        found = await watching
        await visiting
    assert [event.seq for event in found] == list(range(1, 601))
    assert (browser.list, browser.resyncs) == (list(range(1, 601)), [])
    assert again > 100


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
            until(lambda: client.wait(1, 100))
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
