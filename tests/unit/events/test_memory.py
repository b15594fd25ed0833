"""What the memory forgets, and what threads do to it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import pytest

from oncekey import ConfigurationError
from oncekey.events import AsyncBus, Bus, Memory, Resync, Router, Stages, subscription
from tests.patience import PATIENCE, until_async

MANY = Stages({"work": (0, 9999)})


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def memory(clock):
    return Memory(clock=lambda: clock[0])


@pytest.mark.row("E2")
def test_the_state_lives_one_hour_and_the_markers_two(memory, clock):
    bus = Bus(memory, domain="scan")
    assert bus.publish("job-1", "vision", 1, seq=10)
    clock[0] = 3599
    assert bus.state("job-1") is not None
    clock[0] = 3600
    assert bus.state("job-1") is None
    clock[0] = 7199
    assert not bus.publish("job-1", "vision", 1, seq=10)
    seen = bus.read("job-1").cursor
    clock[0] = 7200
    assert bus.read("job-1", after=seen).resync == Resync("epoch")
    assert bus.publish("job-1", "vision", 1, seq=10)


def test_jobs_that_ran_out_take_no_room(memory, clock):
    bus = Bus(memory, domain="scan", stages=MANY)
    for number in range(100):
        clock[0] = number * 100.0
        bus.publish(f"job-{number}", "work", 1, seq=1)
    assert len(memory.jobs) == 72


def test_threads_that_publish_the_same_find_one_winner():
    bus = Bus("memory://", domain="scan", stages=MANY)

    def publish(number):
        return bool(bus.publish("job-1", "work", 1, seq=number % 100))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(publish, range(800))) == 100
    assert [event.offset for event in bus.read("job-1").events] == list(range(1, 101))


async def test_a_thread_wakes_a_watcher(monkeypatch):
    monkeypatch.setattr(subscription, "PATIENCE", 2 * PATIENCE)  # it does not look by itself
    memory = Memory()
    bus, watcher = Bus(memory, domain="scan"), AsyncBus(memory, domain="scan")
    async with aclosing(watcher.subscribe("job-1")) as watched:
        coming = asyncio.ensure_future(anext(watched))
        await until_async(lambda: memory.ears)
        await asyncio.to_thread(bus.publish, "job-1", "vision", 1, seq=10)
        assert (await asyncio.wait_for(coming, PATIENCE)).seq == 10
    assert not memory.ears


def test_a_memory_by_name_is_refused_and_another_scheme_too():
    for url in ("memory://shop", "amqp://localhost", "nonsense", None):
        for kind in (Bus, AsyncBus):
            with pytest.raises(ConfigurationError):
                kind(url, domain="scan")


@pytest.mark.parametrize("url", ["http://user:hush@host", "user:hush@host"])
@pytest.mark.parametrize("door", [Bus, AsyncBus, Router])
def test_a_wrong_url_is_refused_without_repeating_its_password(door, url):
    with pytest.raises(ConfigurationError) as told:
        door(url, domain="scan")
    assert "hush" not in str(told.value)
