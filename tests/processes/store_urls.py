"""Where a worker finds its records: a URL, or `cluster:PORT` for a cluster of Redis.

Only a worker that needs it imports the client of Redis, which takes longer than all the rest.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from oncekey import Once

if TYPE_CHECKING:
    import redis

CLUSTER = "cluster:"


def opened(store_url: str) -> Once:
    """A `Once` on that store, for a process that ends soon."""
    if not store_url.startswith(CLUSTER):
        return Once(store_url)
    from oncekey.stores import RedisStore

    return Once(RedisStore(_cluster(store_url)))


@contextmanager
def using(store_url: str) -> Iterator[Once]:
    """A `Once` on that store; afterwards nothing of it is open."""
    if not store_url.startswith(CLUSTER):
        once = Once(store_url)
        yield once
        once.close()
        return
    from oncekey.stores import RedisStore

    with _cluster(store_url) as client:
        once = Once(RedisStore(client))
        yield once
        once.close()


def _cluster(store_url: str) -> "redis.RedisCluster":
    import redis

    return redis.RedisCluster(host="127.0.0.1", port=int(store_url.removeprefix(CLUSTER)))
