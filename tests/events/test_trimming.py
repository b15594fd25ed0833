"""A stream is bounded, but never trimmed past what a group has not acknowledged."""

import asyncio
from contextlib import aclosing

import pytest
from redis.exceptions import RedisError

from oncekey import StoreError
from oncekey.events import AsyncBus, BackpressureError, Bus, Router, Stages, redis_log, shard_of
from oncekey.events.log import Position
from oncekey.stores.redis.client import Clients
from tests.events.ways import collected
from tests.patience import PATIENCE, until, until_async

JOB = "job-1"
STREAM = f"{{scan:{shard_of(JOB, 4)}}}:events"
OPTIONS = {"stages": Stages({"work": (0, 99999)}), "length": 100, "most": 300}


@pytest.fixture
def bus(empty_redis):
    with Bus(empty_redis.url, domain="scan", **OPTIONS) as bus:
        yield bus


@pytest.fixture
def client(empty_redis):
    with empty_redis.client() as client:
        yield client


@pytest.fixture
def router(empty_redis):
    router = Router(empty_redis.url, domain="scan", length=100, claim_after="1ms")
    yield router
    router.close()


def publish(bus, numbers):
    return bus.publish_batch([(JOB, "work", number, number) for number in numbers])


@pytest.mark.row("E2")
def test_a_stream_keeps_about_its_length_while_routers_keep_up(bus, client, router):
    for start in range(0, 1000, 50):
        publish(bus, range(start, start + 50))
        router.step()
    assert 100 <= client.xlen(STREAM) <= 150
    assert bus.state(JOB).seq == 999


@pytest.mark.row("E7")
def test_a_dead_consumer_loses_nothing_and_publishers_feel_it(bus, client, router):
    publish(bus, range(20))
    client.xgroup_create(STREAM, "router", "0")
    taken = client.xreadgroup("router", "dead", {STREAM: ">"}, count=10)
    assert len(taken[0][1]) == 10
    publish(bus, range(20, 300))
    with pytest.raises(BackpressureError, match="300 entries") as caught:
        bus.publish(JOB, "work", 300, seq=300)
    assert (caught.value.shard, caught.value.length) == (shard_of(JOB, 4), 300)
    assert (caught.value.happened, caught.value.status_hint) == (False, 503)
    assert not bus.publish(JOB, "work", 5, seq=5), "a duplicate needs no room"
    assert len(client.xrange(STREAM)) == 300
    handled = []
    until(lambda: handled.append(router.step()) or sum(handled) == 300)  # the dead one's come late
    assert client.xpending(STREAM, "router")["pending"] == 0
    assert bus.publish(JOB, "work", 300, seq=300)
    assert [event.seq for event in bus.read(JOB).events] == list(range(301))


def test_a_batch_that_fits_only_in_part_says_so(empty_redis):
    """The events of one shard are refused, and those of others are appended."""
    jobs = {shard_of(f"job-{n}", 4): f"job-{n}" for n in range(50)}
    batch = [(jobs[shard], "work", 1, seq) for shard in (0, 1) for seq in range(3)]
    with Bus(empty_redis.url, domain="scan", **OPTIONS | {"length": 1, "most": 4}) as bus:
        for seq in range(10, 14):
            bus.publish(jobs[1], "work", 1, seq=seq)
        with pytest.raises(BackpressureError, match=r"all of them again\. 3 of 6 ") as caught:
            bus.publish_batch(batch)
        assert (caught.value.happened, caught.value.shard) == (None, 1)
        assert len(bus.read(jobs[0]).events) == 3
        with pytest.raises(BackpressureError, match=r"again\. Nothing was appended$") as caught:
            bus.publish_batch(batch[3:])
        assert caught.value.happened is False


@pytest.mark.row("E7")
def test_no_event_of_a_batch_overtakes_one_that_was_refused(bus, client, router, monkeypatch):
    """A router makes room while the batch is on its way."""
    publish(bus, range(299))
    client.xgroup_create(STREAM, "router", "0")
    send = redis_log._send

    def slowly(connected, commands):
        first = send(connected, commands[:2])
        router.step()
        return first + send(connected, commands[2:])

    with monkeypatch.context() as patched:
        patched.setattr(redis_log, "_send", slowly)
        with pytest.raises(BackpressureError, match=r"all of them again\. 2 of 3 "):
            publish(bus, range(299, 302))
    assert [event.seq for event in bus.read(JOB).events] == list(range(300))
    assert list(map(bool, publish(bus, range(299, 302)))) == [False, True, True]
    assert [event.seq for event in bus.read(JOB).events] == list(range(302))


def test_a_batch_that_fills_the_server_says_that_a_part_may_be_there(another_redis):
    server = another_redis()
    with server.client() as client, Bus(server.url, domain="scan", **OPTIONS) as bus:
        bus.publish(JOB, "work", 1, seq=0)
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 500_000)
        batch = [(JOB, "work", "x" * 20_000, seq) for seq in range(1, 45)]
        with pytest.raises(StoreError, match="some of the events may have been appended") as caught:
            bus.publish_batch(batch)
        assert (caught.value.happened, "nothing was" in str(caught.value)) == (None, False)
        seen = [event.seq for event in bus.read(JOB).events]
        assert seen == list(range(len(seen))), "what was refused is not overtaken"
        assert 1 < len(seen) < 45
        client.config_set("maxmemory", client.info("memory")["used_memory"] // 2)
        with pytest.raises(StoreError, match=r"full.*nothing was changed") as caught:
            bus.publish(JOB, "work", "x" * 20_000, seq=45)
        assert caught.value.happened is False
        client.config_set("maxmemory", 0)
        assert len(bus.publish_batch(batch)) == 44
        assert [event.seq for event in bus.read(JOB).events] == list(range(45))


def test_an_event_that_was_appended_is_no_error_of_what_comes_after_it(bus, monkeypatch):
    """The server goes away between the event and the question whether a router reads it."""
    ask, asked = Clients.ask, []

    def gone(clients, words):
        if words[0] == "XINFO":
            asked.append(words)
            raise RedisError("Error 111 connecting to localhost:6379. Connection refused.")
        return ask(clients, words)

    monkeypatch.setattr(Clients, "ask", gone)
    assert bus.publish(JOB, "work", 1, seq=1)
    assert asked


@pytest.mark.row("E7")
def test_every_group_counts(bus, client, router):
    publish(bus, range(10))
    client.xgroup_create(STREAM, "audit", "0")
    router.step()
    publish(bus, range(10, 250))
    router.step()
    assert client.xlen(STREAM) == 250
    client.xreadgroup("audit", "a", {STREAM: ">"}, noack=True)
    router.step()
    assert client.xlen(STREAM) == 100


def test_without_a_router_nothing_is_trimmed(bus, client):
    publish(bus, range(300))
    assert client.xlen(STREAM) == 300
    with pytest.raises(BackpressureError):
        publish(bus, range(300, 310))
    assert client.xlen(STREAM) == 300


async def test_a_shard_that_no_router_reads_is_a_warning(empty_redis, caplog, router):
    async with AsyncBus(empty_redis.url, domain="scan", **OPTIONS) as watcher:
        with Bus(empty_redis.url, domain="scan", **OPTIONS) as publisher:
            publish(publisher, range(3))
            publish(publisher, range(3, 6))
        [told] = [one.getMessage() for one in caplog.records]
        await collected(watcher, JOB, 6)
        [_, again] = [one.getMessage() for one in caplog.records]
        assert told == again
        assert told.startswith(f"no router reads shard {shard_of(JOB, 4)} of the domain 'scan'")
    caplog.clear()
    await asyncio.to_thread(router.step)
    async with AsyncBus(empty_redis.url, domain="scan", **OPTIONS) as watcher:
        await collected(watcher, JOB, 6)
        await watcher.publish(JOB, "work", 6, seq=6)
    assert not caplog.records


async def test_whoever_follows_is_woken_by_the_publisher(bus, empty_redis, monkeypatch):
    """Without a router, and though nobody looks unasked."""
    monkeypatch.setattr("oncekey.events.subscription.PATIENCE", 2 * PATIENCE)
    async with (
        AsyncBus(empty_redis.url, domain="scan", **OPTIONS) as watcher,
        asyncio.timeout(PATIENCE),
        aclosing(watcher.subscribe(JOB)) as watched,
    ):
        for number in range(5):
            coming = asyncio.ensure_future(anext(watched))
            await asyncio.sleep(0.05)
            publish(bus, [number])
            assert (await coming).seq == number


def test_what_every_group_has_acknowledged_does_not_outlive_its_job(bus, client, empty_redis):
    publish(bus, [1, 2, 3])
    old = [(f"{n}-0", fields) for n, (_, fields) in enumerate(client.xrange(STREAM), 1)]
    client.delete(STREAM)
    for name, fields in old:  # as if published long ago
        client.xadd(STREAM, fields, id=name)
    publish(bus, [4])
    client.xgroup_create(STREAM, "router", "0")
    assert client.xreadgroup("router", "dead", {STREAM: ">"}, count=2)
    router = Router(empty_redis.url, domain="scan", claim_after="1h")
    assert router.step() == 2
    assert client.xlen(STREAM) == 4, "the oldest is in the hands of another"
    client.xack(STREAM, "router", "1-0")
    router.step()
    assert client.xrange(STREAM)[0][0] == b"2-0"
    client.xack(STREAM, "router", "2-0")
    router.step()
    assert client.xlen(STREAM) == 1
    router.close()


async def test_whoever_waits_for_a_job_that_never_begins_leaves_nothing_behind(empty_redis, client):
    async with (
        AsyncBus(empty_redis.url, domain="scan", **OPTIONS) as watcher,
        watcher.following("never", Position()),
    ):
        await until_async(lambda: client.keys("*:job:never"))
    [name] = client.keys("*:job:never")
    assert 0 < client.ttl(name) <= 60
    with Bus(empty_redis.url, domain="scan", **OPTIONS) as bus:
        assert bus.read("never") == ([], None, None)
        bus.publish("never", "work", 1, seq=1)
        assert client.ttl(name) > 7000


def test_a_long_stream_is_trimmed_in_parts(empty_redis, client):
    options = OPTIONS | {"most": 5000}
    with Bus(empty_redis.url, domain="scan", **options) as bus:
        publish(bus, range(3000))
        router = Router(empty_redis.url, domain="scan", length=100)
        router.step()
        assert client.xlen(STREAM) == 2000
        publish(bus, range(3000, 3010))
        router.step()
        router.step()
        assert client.xlen(STREAM) == 100
        router.close()
