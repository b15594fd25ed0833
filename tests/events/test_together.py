"""Events that are published at once share a round trip, and nobody pays for a neighbour."""

import asyncio

import pytest

from oncekey import StoreError
from oncekey.events import AsyncBus, Draft, Stages, shard_of
from tests.servers.redis_cut import CutLine

MANY = Stages({"work": (0, 9999)})


@pytest.fixture
async def bus(empty_redis):
    async with AsyncBus(empty_redis.url, domain="scan", stages=MANY) as bus:
        await bus.publish("first", "work", 0, seq=0)
        yield bus


async def test_many_at_once_are_each_answered_with_their_own(bus):
    asks = [(f"job-{n % 7}", n // 7) for n in range(700)] * 2
    answers = await asyncio.gather(*(bus.publish(job, "work", {"n": n}, seq=n) for job, n in asks))
    assert sum(map(bool, answers)) == 700
    for job in {job for job, _ in asks}:
        events = (await bus.read(job)).events
        assert [event.offset for event in events] == list(range(1, 101))
        given = {n: one.offset for (name, n), one in zip(asks, answers, strict=True) if name == job}
        assert {event.seq: event.offset for event in events} == given


async def test_one_that_fails_leaves_its_neighbours_alone(bus, empty_redis):
    with empty_redis.client() as client:
        client.set(f"{{scan:{shard_of('bad', 4)}}}:job:bad", "somebody else's")
    jobs = ["job-1", "bad", "job-2"]
    answers = await asyncio.gather(
        *(bus.publish(job, "work", 1, seq=1) for job in jobs), return_exceptions=True
    )
    assert answers[0]
    assert answers[2]
    assert isinstance(answers[1], StoreError)
    assert answers[1].happened is False


async def test_one_that_is_cancelled_leaves_its_neighbours_alone(bus):
    tasks = [asyncio.create_task(bus.publish("job-1", "work", n, seq=n)) for n in range(9)]
    await asyncio.sleep(0)
    tasks[4].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[4], asyncio.CancelledError)
    assert all(answers[:4] + answers[5:])


async def test_scripts_that_the_server_forgot_are_told_again(bus, empty_redis):
    with empty_redis.client() as client:
        client.script_flush()
    answers = await asyncio.gather(*(bus.publish("job-1", "work", n, seq=n) for n in range(20)))
    assert all(answers)
    assert len((await bus.read("job-1")).events) == 20
    with empty_redis.client() as client:
        client.script_flush()
    assert all(await bus.publish_batch([Draft("job-2", "work", n, seq=n) for n in range(5)]))


async def test_a_reply_that_is_lost_is_asked_for_again(bus, empty_redis):
    line = CutLine(empty_redis.port)
    async with AsyncBus(line.url, domain="scan", stages=MANY) as cut_off:
        for number in range(4):
            line.cut = number % 2 == 1
            assert await cut_off.publish("job-1", "work", number, seq=number)
            assert not line.cut
        assert [event.offset for event in (await bus.read("job-1")).events] == [1, 2, 3, 4]
    line.close()


async def test_a_server_that_is_gone_is_told_to_everybody(another_redis):
    server = another_redis()
    async with AsyncBus(server.url, domain="scan", stages=MANY) as bus:
        await bus.publish("first", "work", 0, seq=0)
        server.kill()
        assert server.process.returncode == -9
        answers = await asyncio.gather(
            *(bus.publish("job-1", "work", n, seq=n) for n in range(5)), return_exceptions=True
        )
        assert {type(one) for one in answers} == {StoreError}


async def test_a_large_one_travels_alone(bus):
    large = "x" * 50_000
    answers = await asyncio.gather(
        *(bus.publish("job-1", "work", large if n == 2 else n, seq=n) for n in range(4))
    )
    assert all(answers)
    found = {event.seq: event.data for event in (await bus.read("job-1")).events}
    assert found == {0: 0, 1: 1, 2: large, 3: 3}


async def test_a_connection_that_was_taken_away_is_a_store_that_failed(bus, monkeypatch):
    """In a cluster redis-py closes connections that others use, and these meet a None."""

    async def none(*_, **__):
        return None.writelines

    with monkeypatch.context() as broken:
        broken.setattr(bus._log._clients, "ask", none)
        for asked in (
            bus.publish("job-1", "work", 1, seq=1),
            bus.read("job-1"),
            bus.state("job-1"),
        ):
            with pytest.raises(StoreError, match="nobody knows") as caught:
                await asked
            assert caught.value.happened is None
    assert await bus.publish("job-1", "work", 1, seq=1)
