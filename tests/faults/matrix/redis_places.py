"""Addresses of several Redis servers, which have no URL of their own in the product."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel

from oncekey.stores import RedisStore, open_store

TIMEOUT = 2.0
QUICK: dict[str, Any] = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT}


def store_at(place: str) -> Any:
    """The store of this URL, of `sentinel://a:1,b:2/name` or of `cluster://a:1,b:2`."""
    parts = urlsplit(place)
    if parts.scheme not in ("sentinel", "cluster"):
        return open_store(place)
    addresses = [(host, int(port)) for host, port in map(_split, parts.netloc.split(","))]
    options = {name: value[0] for name, value in parse_qs(parts.query).items()}
    wait = None
    if "wait" in options:
        count, patience = options["wait"].split(",")
        wait = int(count), patience
    client: Any
    if parts.scheme == "sentinel":
        watchers = Sentinel(addresses, sentinel_kwargs=QUICK)
        name = parts.path.strip("/")
        client = watchers.master_for(name, retry=Retry(NoBackoff(), 0), **QUICK)
    else:
        client = redis.RedisCluster(startup_nodes=[ClusterNode(*one) for one in addresses], **QUICK)
    return RedisStore(client, prefix=options["prefix"], wait=wait)


def _split(address: str) -> list[str]:
    return address.split(":")
