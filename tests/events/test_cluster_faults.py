"""A cluster in trouble: routers and a node are killed, and a replica takes over without a part."""

import asyncio
import random
import signal
from contextlib import aclosing

import pytest
import redis
import redis.asyncio

from oncekey import StoreError
from oncekey.events import AsyncBus, Event, Gateway, Resync, Stages, shard_of
from tests.events.browsers import Browser, serving
from tests.events.ways import collected
from tests.heavy import HEAVY
from tests.patience import PATIENCE, until, until_async
from tests.processes.child_processes import spawn_of
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import SLOTS, RedisCluster

__all__ = ["spawn_of"]

MODULE = "tests.events.router_worker"
MANY = Stages({"work": (1, 9999)})
EACH, KILLS = 150, 6


class Durable(RedisCluster):
    """Every write is in the append-only file before it is answered."""

    def _node(self, folder):
        folder.mkdir()
        options = {"cluster-enabled": "yes", "appendonly": "yes", "appendfsync": "always"}
        return RedisServer(folder, **options)

    def owner(self, key):
        """The node that had the key when the cluster was made."""
        with self.nodes[0].client() as client:
            return self.nodes[client.execute_command("CLUSTER KEYSLOT", key) * 3 // SLOTS]


@pytest.fixture
def cluster(tmp_path):
    made = Durable(tmp_path)
    try:
        yield made.start()
    finally:
        made.stop()


async def published(bus, job, number):
    """However often it takes. Whether one of them was the first is not known in between."""
    while True:
        try:
            return await bus.publish(job, "work", number, seq=number)
        except StoreError:
            await asyncio.sleep(0.05)


if HEAVY:  # a node that is back waits for seconds before it takes part again

    @pytest.mark.row("E7")
    async def test_routers_and_nodes_that_are_killed_lose_nothing(cluster, spawn_of):
        chance = random.Random(3)  # noqa: S311 - no secret
        jobs = [f"job-{n}" for n in range(8)]

        def start():
            worker = spawn_of(MODULE, f"cluster:{cluster.nodes[0].port}", "200ms")
            worker.until("ready")
            return worker

        async with (
            asyncio.timeout(PATIENCE),
            redis.asyncio.RedisCluster(**cluster.address) as client,
            AsyncBus(client, domain="scan", stages=MANY) as bus,
            serving(Gateway(bus, allow=None)) as port,
        ):
            routers = [start(), start()]
            browsers = [Browser(port, job) for job in jobs]
            visits = [asyncio.create_task(browser.visit(until=EACH)) for browser in browsers]
            watching = [asyncio.create_task(collected(bus, job, EACH)) for job in jobs]
            fatal = set(chance.sample(range(2, EACH), KILLS))
            for number in range(1, EACH + 1):
                for job in jobs:
                    await published(bus, job, number)
                    if chance.random() < 0.3:
                        assert not await published(bus, job, number)
                if number not in fatal:
                    continue
                routers[0].process.kill()
                assert routers[0].process.wait() == -signal.SIGKILL
                routers = [routers[1], await asyncio.to_thread(start)]
                node = chance.choice(cluster.nodes)
                node.kill()
                assert node.process.returncode == -signal.SIGKILL
                await asyncio.to_thread(node.start)
            found = await asyncio.gather(*watching)
            await asyncio.gather(*visits)
            for router in routers:
                router.signal(signal.SIGTERM)
                assert await asyncio.to_thread(router.process.wait, PATIENCE) == 0
        for events, browser in zip(found, browsers, strict=True):
            assert [event.seq for event in events] == list(range(1, EACH + 1))
            assert (browser.list, browser.resyncs) == (list(range(1, EACH + 1)), [])


def with_replica(cluster, primary, folder):
    """A fourth node, which has what the primary has."""
    replica = cluster._node(folder)
    replica.start()
    with primary.client() as client, replica.client() as other:
        other.execute_command("CLUSTER", "MEET", "127.0.0.1", primary.port)
        name = client.execute_command("CLUSTER MYID")
        until(lambda: all(map(_knows_four, [*cluster.nodes, replica])))
        until(lambda: _did(other, "CLUSTER", "REPLICATE", name))
        until(lambda: other.info("replication").get("master_link_status") == "up")
    return replica


def _knows_four(node):
    with node.client() as client:
        nodes = client.execute_command("CLUSTER NODES")
    return len(nodes) == 4 and "handshake" not in str(nodes)


def _did(client, *words):
    try:
        return client.execute_command(*words)
    except redis.ResponseError:  # it does not know that node well enough yet
        return False


@pytest.mark.row("E7")
async def test_a_replica_that_takes_over_without_the_newest_events_is_a_resync(
    cluster, spawn_of, tmp_path
):
    """Who saw what was lost is told; who did not goes on. No id ever names two events."""
    job = "job-1"
    primary = cluster.owner(f"{{scan:{shard_of(job, 4)}}}:events")
    others = [node for node in cluster.nodes if node is not primary]
    replica = with_replica(cluster, primary, tmp_path / "replica")
    router = spawn_of(MODULE, f"cluster:{others[0].port}", "200ms")
    router.until("ready")
    try:
        async with (
            asyncio.timeout(PATIENCE),
            redis.asyncio.RedisCluster(host="127.0.0.1", port=others[0].port) as client,
            AsyncBus(client, domain="scan", stages=MANY) as bus,
            serving(Gateway(bus, allow=None)) as port,
        ):
            witness, absent = Browser(port, job), Browser(port, job)
            found = []
            watching = asyncio.create_task(watch(bus, job, found))
            for number in (1, 2, 3):
                await published(bus, job, number)
            await absent.visit(until=3)
            await asyncio.to_thread(cut_off, primary, replica)
            visiting = asyncio.create_task(witness.visit(until=5))
            for number in (4, 5):
                await published(bus, job, number)
            await visiting
            await until_async(lambda: len(found) >= 5)
            await asyncio.to_thread(take_over, primary, replica, others)
            visiting = asyncio.create_task(witness.visit(until=6))
            for number in (6, 5, 7):  # one that was lost is published again
                assert await published(bus, job, number)
            await watching
            await visiting
            await absent.visit(until=6)
            log = (await bus.read(job)).events
    finally:
        replica.stop()
    assert [event.seq for event in log] == [1, 2, 3, 6, 5, 7]
    told = [one.seq if isinstance(one, Event) else one for one in found]
    assert told == [1, 2, 3, 4, 5, Resync("mark"), 1, 2, 3, 6, 5, 7]
    names = {}
    for event in (one for one in found if isinstance(one, Event)):
        assert names.setdefault(event.id, event.identity) == event.identity
    assert (witness.list, {*witness.resyncs}) == ([1, 2, 3, 6, 5, 7], {"mark"})
    assert (absent.list, absent.resyncs) == ([1, 2, 3, 6, 5, 7], [])


async def watch(bus, job, found):
    """Everything that comes, until the event that is published last."""
    async with aclosing(bus.subscribe(job)) as watched:
        async for one in watched:
            found.append(one)
            if isinstance(one, Event) and one.seq == 7:
                return


def cut_off(primary, replica):
    """The replica has all that there is, and gets nothing more, though the primary goes on."""
    with primary.client() as client, replica.client() as other:
        until(lambda: client.wait(1, 100))
        client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        until(lambda: other.info("replication").get("master_link_status") == "down")


def take_over(primary, replica, others):
    """The primary is gone, and everybody knows who is in its place."""
    primary.kill()
    assert primary.process.returncode == -signal.SIGKILL
    with replica.client() as client:
        client.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
    for node in others:
        with node.client() as client:
            until(
                lambda client=client: (
                    str(replica.port) in str(client.execute_command("CLUSTER SLOTS"))
                )
            )
