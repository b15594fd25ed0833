"""Where a worker finds its records: a URL, or `cluster:PORT` for a cluster of Redis."""

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from oncekey import Once
from oncekey.stores import RedisStore

CLUSTER = "cluster:"


def opened(store_url: str) -> Once:
    """A `Once` on that store, for a process that ends soon."""
    return Once(RedisStore(_cluster(store_url)) if store_url.startswith(CLUSTER) else store_url)


@contextmanager
def using(store_url: str) -> Iterator[Once]:
    """A `Once` on that store; afterwards nothing of it is open."""
    if not store_url.startswith(CLUSTER):
        once = Once(store_url)
        yield once
        once.close()
        return
    with _cluster(store_url) as client:
        once = Once(RedisStore(client))
        yield once
        once.close()


def _cluster(store_url: str) -> redis.RedisCluster:
    return redis.RedisCluster(host="127.0.0.1", port=int(store_url.removeprefix(CLUSTER)))
