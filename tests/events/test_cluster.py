"""The same on a cluster of three nodes, and on Valkey."""

import asyncio

import pytest
import redis
import redis.asyncio

from oncekey.events import AsyncBus, Bus, Router, Stages
from tests.events.ways import collected
from tests.servers.redis_fixtures import (
    empty_cluster,
    empty_valkey,
    redis_cluster,
    valkey_server,
)

__all__ = ["empty_cluster", "empty_valkey", "redis_cluster", "valkey_server"]

MANY = Stages({"work": (1, 9999)})
JOBS = [f"job-{n}" for n in range(12)]


async def journey(where, async_where, shards):
    """Publish in both colours and in batches, watch, route, keep to the length."""
    options = {"domain": "scan", "stages": MANY, "length": 20, "shards": shards}
    bus, watcher = Bus(where, **options), AsyncBus(async_where, **options)
    router = Router(where, domain="scan", length=20, shards=shards)
    watching = [asyncio.create_task(collected(watcher, job, 30)) for job in JOBS]
    for number in range(1, 11):
        for job in JOBS:
            assert bus.publish(job, "work", number, seq=number)
            assert not await watcher.publish(job, "work", number, seq=number)
    await asyncio.to_thread(router.step)
    assert all(bus.publish_batch([(job, "work", n, n) for n in range(11, 21) for job in JOBS]))
    drafts = [(job, "work", n, n) for n in range(21, 31) for job in JOBS]
    assert all(await watcher.publish_batch(drafts))
    await asyncio.to_thread(router.step)
    for found in await asyncio.gather(*watching):
        assert [event.seq for event in found] == list(range(1, 31))
    for job in JOBS:
        assert (bus.state(job).seq, (await watcher.state(job)).seq) == (30, 30)
    router.close()
    bus.close()
    await watcher.aclose()


@pytest.mark.row("E2", "E7")
async def test_on_a_cluster_of_three_nodes(empty_cluster):
    with redis.RedisCluster(**empty_cluster.address) as client:
        async with redis.asyncio.RedisCluster(**empty_cluster.address) as coroutines:
            await journey(client, coroutines, 6)
    sizes = []
    for node in empty_cluster.nodes:
        with node.client() as client:
            sizes.append(len([key for key in client.scan_iter() if key.endswith(b":events")]))
    assert sum(sizes) == 6
    assert max(sizes) < 6, "the shards are on several nodes"


async def test_on_valkey(empty_valkey):
    await journey(empty_valkey.url, empty_valkey.url, 4)
