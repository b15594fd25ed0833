"""`oncekey router` on a Redis Cluster and behind a Sentinel."""

import json

import redis

from oncekey.events import Bus
from tests.cli.test_router import JOBS, STAGES, ended, publish, start, until_routed
from tests.patience import PATIENCE
from tests.servers.redis_fixtures import empty_cluster, empty_redis, redis_cluster, redis_server
from tests.servers.redis_sentinel import NAME, Watched

__all__ = ["empty_cluster", "empty_redis", "redis_cluster", "redis_server", "start"]


def test_it_reads_from_a_cluster(empty_cluster, start):
    where = empty_cluster.address
    process = start("--cluster", "--json", ONCEKEY_STORE="redis://{host}:{port}".format(**where))
    with (
        redis.RedisCluster(**where) as client,
        Bus(client, domain="scan", stages=STAGES) as bus,
    ):
        publish(bus, 1, 2)
        until_routed(bus, 2)
    assert json.loads(ended(process).splitlines()[-1])["routed"] == 2 * len(JOBS)


def test_it_asks_a_sentinel_for_the_primary(tmp_path, start):
    watched = Watched(tmp_path)
    try:
        host, port = watched.address
        process = start("--sentinel", NAME, "--json", ONCEKEY_STORE=f"redis://{host}:{port}")
        with Bus(watched.primary.url, domain="scan", stages=STAGES) as bus:
            publish(bus, 1, 2)
            until_routed(bus, 2)
        assert json.loads(ended(process).splitlines()[-1])["routed"] == 2 * len(JOBS)
    finally:
        watched.stop()


def test_a_cluster_behind_a_sentinel_is_refused(start):
    process = start("--sentinel", NAME, "--cluster")
    assert "give --cluster or --sentinel" in process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 2
