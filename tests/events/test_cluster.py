"""The same on a cluster of three nodes, on Valkey, and for a user with few rights."""

import asyncio
from contextlib import aclosing

import pytest
import redis
import redis.asyncio

from oncekey.events import AsyncBus, Bus, Gateway, Router, Stages, bundle, subscription, tail
from tests.events.browsers import Browser, serving
from tests.events.ways import collected, coming
from tests.patience import PATIENCE, until_async
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


# Topics, whose jobs are on all nodes


@pytest.fixture
def nobody_looks_unasked(monkeypatch):
    """Who is not woken is too late."""
    for module in (subscription, bundle, tail):
        monkeypatch.setattr(module, "PATIENCE", 2 * PATIENCE)


async def topics(where, async_where, shards):
    """Follow a topic in both colours and through a gateway, while its jobs begin."""
    options = {"domain": "scan", "stages": MANY, "shards": shards}
    bus, watcher = Bus(where, **options), AsyncBus(async_where, **options)
    follower = Bus(where, **options)
    jobs = [f"order/{number}" for number in range(12)]

    async def followed():
        async with aclosing(watcher.subscribe_many(["order/*"])) as watched:
            return [await anext(watched) for _ in range(24)]

    blocked = coming(follower.subscribe_many(["order/*"]), 24)
    async with asyncio.timeout(PATIENCE), serving(Gateway(watcher, allow=None)) as port:
        browser = Browser(port, "", "?job=order/*")
        watching = [
            asyncio.create_task(followed()),
            asyncio.wrap_future(blocked),
            asyncio.create_task(browser.visit(until=24)),
        ]
        for number, job in enumerate(jobs):
            for seq in (1, 2):
                bus.publish(job, "work", None, seq=seq)
            await until_async(lambda n=number: len(browser.list) == 2 * n + 2)
        found = await asyncio.gather(*watching)
    for changes in found[:2]:
        numbers = sorted((job, event.seq) for job, event in changes)
        assert numbers == sorted((job, seq) for job in jobs for seq in (1, 2))
    assert browser.jobs == {job: [1, 2] for job in jobs}
    bus.close()
    follower.close()
    await watcher.aclose()


@pytest.mark.row("E5")
@pytest.mark.usefixtures("nobody_looks_unasked")
async def test_topics_on_a_cluster_of_three_nodes(empty_cluster):
    with redis.RedisCluster(**empty_cluster.address) as client:
        async with redis.asyncio.RedisCluster(**empty_cluster.address) as coroutines:
            await topics(client, coroutines, 6)


RIGHTS = "~{scan* &{scan:* +@scripting +@read +@write +@connection +time"
"""What docs/events.md says that a user needs."""
WAKING = "+subscribe +unsubscribe +publish"


@pytest.fixture
def limited(empty_redis):
    """Make users with these rights alone, and return their URLs."""
    client, made = empty_redis.client(), []

    def user(rights):
        made.append(f"few{len(made)}")
        words = (made[-1], "on", ">p", "resetchannels", *rights.split())
        client.execute_command("ACL", "SETUSER", *words)
        return f"redis://{made[-1]}:p@127.0.0.1:{empty_redis.port}/0"

    yield user
    client.execute_command("ACL", "DELUSER", *made)


@pytest.mark.row("E5")
@pytest.mark.usefixtures("nobody_looks_unasked")
async def test_topics_for_a_user_who_has_the_rights_that_the_docs_name(limited):
    url = limited(f"{RIGHTS} {WAKING}")
    await topics(url, url, 4)
    await journey(url, url, 4)


async def test_a_user_who_may_not_listen_is_late_and_misses_nothing(limited, monkeypatch):
    for module in (subscription, bundle, tail):
        monkeypatch.setattr(module, "PATIENCE", 0.1)
    url = limited(RIGHTS)
    await topics(url, url, 4)
