"""What a page, a queue and a long job cost is bounded, whatever is published."""

import asyncio

import pytest

from oncekey.events import (
    AsyncBus,
    Bus,
    Draft,
    Gateway,
    InvalidEventError,
    Memory,
    Stages,
    shard_of,
)
from oncekey.events.log import BUDGET, Position
from tests.patience import PATIENCE

JOB = "job-1"
MANY = Stages({"work": (0, 99_999), "other": (100_000, 199_999)})
LARGEST = "x" * (256 * 1024 - 2)
JOB_KEY = f"{{scan:{shard_of(JOB, 4)}}}:job:{JOB}"


async def test_a_page_has_about_a_mebibyte_and_the_largest_event_passes(system):
    bus = system.bus(stages=MANY)
    for seq in range(12):
        await bus.publish(JOB, "work", LARGEST if seq % 3 else "small", seq=seq)
    page = await bus.read(JOB)
    seen, sizes = [], []
    while page.events:
        seen += [event.seq for event in page.events]
        sizes.append(sum(len(event.data) for event in page.events))
        page = await bus.read(JOB, after=page.cursor)
    assert seen == list(range(12))
    assert max(sizes) <= BUDGET + len(LARGEST)
    assert len(sizes) > 1


async def test_a_client_that_does_not_read_lets_no_more_than_a_mebibyte_wait(system):
    bus, watcher = system.bus(stages=MANY), system.watcher(stages=MANY)
    for seq in range(12):
        await bus.publish(JOB, "work", LARGEST, seq=seq)
    async with watcher.following(JOB, Position(), 1000) as follower:
        seen = []
        while len(seen) < 12:
            batches = await follower.batches()
            assert sum(batch.size for batch in batches) <= BUDGET + 2 * len(LARGEST)
            seen += [event.seq for batch in batches for event in batch.events]
    assert seen == list(range(12))


async def test_new_events_that_wait_are_counted_in_bytes():
    bus = AsyncBus(Memory(), domain="scan", stages=MANY)
    async with (
        bus.following(JOB, Position(), 1000) as slow,
        bus.following(JOB, Position()) as quick,
    ):
        for seq in range(6):
            await bus.publish(JOB, "work", LARGEST, seq=seq)
            assert len(await quick.batches()) == 1
        assert slow.slow
        assert await slow.batches() == []


async def test_a_server_is_never_given_more_than_it_can_hold_for_a_client_that_reads_nothing():
    """It copies what the client has not taken; the next piece waits until it has."""
    bus = AsyncBus(Memory(), domain="scan", stages=MANY)
    for seq in range(3):
        await bus.publish(JOB, "work", LARGEST, seq=seq)
    pieces, all_there = [], asyncio.Event()

    async def send(message):
        pieces.append(message.get("body", b""))
        if sum(map(len, pieces)) > 3 * len(LARGEST):
            all_there.set()

    scope = {"type": "http", "method": "GET", "path": f"/{JOB}", "query_string": b"", "headers": []}
    response = asyncio.create_task(Gateway(bus, allow=None)(scope, asyncio.Event().wait, send))
    await asyncio.wait_for(all_there.wait(), PATIENCE)
    response.cancel()
    await asyncio.wait([response])
    assert max(map(len, pieces)) <= 64 * 1024
    assert b"".join(pieces).count(LARGEST.encode()) == 3


@pytest.fixture
def bus(empty_redis):
    with Bus(empty_redis.url, domain="scan", stages=MANY) as bus:
        yield bus


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.mark.row("E1")
def test_the_markers_of_a_long_job_are_few_and_know_every_duplicate(bus, client):
    """Two stages that take turns, and a number that is left out."""
    drafts = [
        Draft(JOB, stage, number, seq=first + number)
        for number in range(3000)
        for stage, first in (("work", 0), ("other", 100_000))
        if number != 7
    ]
    for start in range(0, len(drafts), 500):
        assert all(bus.publish_batch(drafts[start : start + 500]))
    assert client.memory_usage(JOB_KEY) < 40 * len(drafts)
    assert client.hlen(JOB_KEY) < 1100
    for start in range(0, len(drafts), 500):
        assert not any(bus.publish_batch(drafts[start : start + 500]))
    assert bus.publish(JOB, "work", 7, seq=7).offset == len(drafts) + 1
    old = bus.publish(JOB, "work", "something else", seq=3)
    assert (old.duplicate, old.differs, old.offset) == (True, None, 0)
    with pytest.raises(InvalidEventError, match="published too long ago"):
        bus.publish(JOB, "work", "something else", seq=3, strict=True)
    new = bus.publish(JOB, "work", "something else", seq=2999)
    assert (new.duplicate, new.differs) == (True, True)


@pytest.mark.row("E1")
def test_numbers_far_apart_are_known_as_well(empty_redis):
    stages = Stages({"work": (0, 2**53 - 1)})
    with Bus(empty_redis.url, domain="scan", stages=stages) as bus:
        numbers = [n * 7_654_321_987 + (1 << 52) for n in range(1100)]
        for again in (False, True):
            for start in range(0, 1100, 550):
                drafts = [Draft(JOB, "work", n, seq=n) for n in numbers[start : start + 550]]
                assert [bool(one) for one in bus.publish_batch(drafts)] == [not again] * 550
        assert bus.publish(JOB, "work", 1, seq=numbers[0] + 1)
