"""The Redis store on a cluster of three nodes, in both colours."""

import pytest
import redis
import redis.asyncio

from oncekey.core.requests import Busy, Claim, Forget, Granted, Replay, Scan, Settle, Verdict
from oncekey.errors import StoreError
from oncekey.stores import AsyncRedisStore, RedisStore
from oncekey.stores.adapters import Threaded
from tests.servers.redis_fixtures import empty_cluster, redis_cluster

__all__ = ["empty_cluster", "redis_cluster"]

HOUR = 3_600_000_000
MANY = 30


@pytest.fixture
def cluster(empty_cluster):
    return empty_cluster


def claim(number, nonce="a"):
    return Claim("s", f"k{number}", nonce=nonce, fingerprint=None, lease=HOUR, ttl=HOUR)


def settle(record):
    return Settle(
        record.scope,
        record.key,
        token=record.token,
        nonce=record.nonce,
        status="completed",
        result=b"\xff",
        error=None,
        ttl=HOUR,
    )


def test_records_are_on_all_nodes_and_found_there(cluster):
    with redis.RedisCluster(**cluster.address) as client:
        store = RedisStore(client)
        owners = [store.claim(claim(number)).record for number in range(MANY)]
        assert {type(store.claim(claim(number, "b"))) for number in range(MANY)} == {Busy}
        assert {store.settle(settle(owner)) for owner in owners} == {Verdict.DONE}
        assert {type(store.claim(claim(number, "b"))) for number in range(MANY)} == {Replay}
        assert len(store.scan(Scan()).records) == MANY
        page = store.scan(Scan(limit=7))
        assert len(store.scan(Scan(after=page.after)).records) == MANY - 7
    for server in cluster.nodes:
        with server.client() as node:
            assert node.dbsize() > 0


def test_a_forget_that_found_nothing_is_not_written_down(cluster):
    with redis.RedisCluster(**cluster.address) as client:
        store = RedisStore(client)
        record = store.claim(claim(1)).record
        ask = Forget("s", "k1", token=record.token, force=True, audit=b"{}")
        assert [store.forget(ask), store.forget(ask)] == [Verdict.DONE, Verdict.DONE]
        assert [entry for _, entry in store.audited(5)] == [b"{}"]


async def test_coroutines_reach_all_nodes(cluster):
    async with redis.asyncio.RedisCluster(**cluster.address) as client:
        store = AsyncRedisStore(client)
        answers = [await store.claim(claim(number)) for number in range(MANY)]
        assert {type(answer) for answer in answers} == {Granted}
        verdicts = [await store.settle(settle(answer.record)) for answer in answers]
        assert set(verdicts) == {Verdict.DONE}
        records = (await store.scan(Scan())).records
        assert [record.result for record in records] == [b"\xff"] * MANY


async def test_a_blocking_client_of_a_cluster_serves_coroutines_on_threads(cluster):
    with redis.RedisCluster(**cluster.address) as client:
        store = RedisStore(client).as_async()
        assert isinstance(store, Threaded)
        assert isinstance(await store.claim(claim(1)), Granted)


def test_one_node_asked_alone_points_to_the_cluster(cluster):
    with cluster.nodes[0].client() as client:
        store = RedisStore(client)
        with pytest.raises(StoreError, match="node of a cluster; pass RedisStore") as told:
            for number in range(MANY):
                store.claim(claim(number))
    assert told.value.happened is False


def test_what_is_cut_off_closes_the_idle_connections_of_every_node(cluster):
    with redis.RedisCluster(**cluster.address) as client:
        store = RedisStore(client)
        for number in range(MANY):
            store.claim(claim(number))
        with pytest.raises(KeyboardInterrupt), store.clients.using():
            raise KeyboardInterrupt
        nodes = [node.redis_connection for node in client.get_nodes() if node.redis_connection]
        idle = [one for node in nodes for one in node.connection_pool._available_connections]
        assert idle
        assert not [one for one in idle if one.is_connected]
