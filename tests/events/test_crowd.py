"""Many browsers on one gateway, some of them slow, all of them cut off anywhere."""

import asyncio
import random

import pytest

from oncekey import ConfigurationError
from oncekey.events import AsyncBus, Gateway, Memory, Stages
from tests.events.browsers import Browser, serving
from tests.events.ways import System
from tests.heavy import HEAVY
from tests.patience import PATIENCE, until, until_async

MANY = Stages({"work": (1, 9999)})
CLIENTS, CUTS, EVENTS = (100, 20, 400) if HEAVY else (20, 6, 60)


@pytest.mark.row("E5", "E7")
async def test_a_crowd_that_is_cut_off_anywhere_ends_with_the_whole_log(empty_redis, monkeypatch):
    """Nobody hangs, though nobody is woken for the last events."""
    monkeypatch.setattr("oncekey.events.subscription.PATIENCE", 0.5)
    chance = random.Random(5)  # noqa: S311 - no secret
    system = System(empty_redis.url, asynchronous=True, router=True)
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    cuts = []

    async def follow(browser):
        for _ in range(CUTS):
            await browser.visit(until=EVENTS, cut=chance.randrange(1, EVENTS * 250 // CUTS))
            cuts.append(len(browser.list))
        await browser.visit(until=EVENTS)

    async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None)) as port:
        browsers = [Browser(port, "job-1") for _ in range(CLIENTS)]
        watching = [asyncio.create_task(follow(browser)) for browser in browsers]
        for start in range(1, EVENTS + 1, 5):
            for number in range(start, start + 5):
                await bus.publish("job-1", "work", {"text": "ä\n\n", "n": number}, seq=number)
            if start + 5 < EVENTS:
                await asyncio.to_thread(system.routed)
        await asyncio.gather(*watching)
    for browser in browsers:
        assert (browser.list, browser.resyncs) == (list(range(1, EVENTS + 1)), [])
    assert len(cuts) == CLIENTS * CUTS
    await system.aclose()
    with empty_redis.client() as client:
        until(lambda: client.client_list(_type="pubsub") == [])  # the last one closes the door


@pytest.mark.row("E7")
async def test_a_client_that_takes_nothing_is_let_go_and_comes_back_to_its_place(caplog):
    """Real sockets fill up; then its queue does."""
    bus = AsyncBus(Memory(), domain="scan", stages=MANY)
    counts = {}

    def count(happening):
        name = happening.name, happening.reason
        counts[name] = counts.get(name, 0) + happening.count

    watcher = AsyncBus(bus._log._log._memory, domain="scan", stages=MANY, observers=[count])
    large = "x" * 100_000
    async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None, queue=10)) as port:
        slow, quick = Browser(port, "job-1"), Browser(port, "job-1")
        slow.buffer = 4096
        arrived, go_on = asyncio.Event(), asyncio.Event()
        dawdling = asyncio.create_task(slow.visit(pause=(arrived, go_on)))
        visiting = asyncio.create_task(quick.visit(until=100))
        await arrived.wait()
        for number in range(1, 101):
            await bus.publish("job-1", "work", large, seq=number)
            await until_async(lambda seen=number: len(quick.list) >= seen)
        await visiting
        go_on.set()
        await dawdling  # the gateway has hung up
        assert slow.list == list(range(1, len(slow.list) + 1))
        assert 0 < len(slow.list) < 100
        await slow.visit(until=100)
    assert slow.list == quick.list == list(range(1, 101))
    assert slow.resyncs == quick.resyncs == []
    assert counts["slow", ""] == 1
    assert counts["joined", ""] == counts["left", ""] == 3
    assert not caplog.records


@pytest.mark.row("E5")
async def test_browsers_of_one_job_share_its_reads(empty_redis, monkeypatch):
    """What a crowd costs Redis does not grow with the crowd."""
    monkeypatch.setattr(
        "oncekey.events.subscription.PATIENCE", 2 * PATIENCE
    )  # nobody looks unasked
    system = System(empty_redis.url, asynchronous=True, router=True)
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    with empty_redis.client() as client:
        async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None)) as port:
            browsers = [Browser(port, "job-1") for _ in range(40)]
            watching = [asyncio.create_task(one.visit(until=20)) for one in browsers]
            await until_async(lambda: len(readers(watcher)) == len(browsers))
            before = scripts_run(client)
            for number in range(1, 21):
                await bus.publish("job-1", "work", number, seq=number)
                await asyncio.to_thread(system.routed)
            await asyncio.gather(*watching)
            asked = scripts_run(client) - before
    assert [browser.list for browser in browsers] == [list(range(1, 21))] * 40
    # 20 to publish, and of a router's step on four shards 9 each: the rest is reading.
    assert asked < 20 * (1 + 9) + 40 * 3
    await system.aclose()


def scripts_run(client):
    """How often the server has run a script that it knew; 0 on one that has just begun."""
    return client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


def readers(bus):
    return [
        one
        for jobs in bus.following._loops.values()
        for of in jobs.values()
        for one in of.followers
    ]


@pytest.mark.parametrize("queue", [0, -1, True, 1.5, "10"])
def test_a_queue_that_cannot_be_is_refused(queue):
    bus = AsyncBus("memory://", domain="scan")
    with pytest.raises(ConfigurationError, match="queue must be a whole number above zero"):
        Gateway(bus, allow=None, queue=queue)
