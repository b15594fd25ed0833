"""A router in a process of its own: python -m tests.surfaces.events.router_worker URL CLAIM_AFTER

`cluster:` and the port of a node instead of a URL is a cluster.
It says ready when it starts, and ends on SIGTERM when what it has in hand is handled.
"""

import signal
import sys

import redis

from oncekey.events import Router


def main():
    where, claim_after = sys.argv[1:]
    scheme, _, port = where.partition(":")
    if scheme == "cluster":
        where = redis.RedisCluster(host="127.0.0.1", port=int(port))
    router = Router(where, domain="scan", claim_after=claim_after)
    signal.signal(signal.SIGTERM, lambda *_: router.stop())
    print("ready", flush=True)  # noqa: T201 - what the test waits for
    router.run()
    router.close()


if __name__ == "__main__":
    main()
