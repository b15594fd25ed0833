"""Where a worker finds its records: a URL, or `cluster:PORT` for a cluster of Redis."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from oncekey import Once
from oncekey.stores import RedisStore

CLUSTER = "cluster:"


def opened(place: str) -> Once:
    """A `Once` on that store, for a process that ends soon."""
    return Once(RedisStore(_cluster(place)) if place.startswith(CLUSTER) else place)


@contextmanager
def using(place: str) -> Iterator[Once]:
    """A `Once` on that store; afterwards nothing of it is open."""
    if not place.startswith(CLUSTER):
        once = Once(place)
        yield once
        once.close()
        return
    with _cluster(place) as client:
        once = Once(RedisStore(client))
        yield once
        once.close()


def _cluster(place: str) -> redis.RedisCluster:
    return redis.RedisCluster(host="127.0.0.1", port=int(place.removeprefix(CLUSTER)))
