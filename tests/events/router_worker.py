"""A router in a process of its own: python -m tests.events.router_worker URL CLAIM_AFTER

`cluster:` and the port of a node instead of a URL is a cluster.
It says ready when it starts, and ends on SIGTERM when what it has in hand is handled.
"""

import signal
import sys
import threading

import redis

from oncekey.events import Router


def main():
    where, claim_after = sys.argv[1:]
    scheme, _, port = where.partition(":")
    if scheme == "cluster":
        where = redis.RedisCluster(host="127.0.0.1", port=int(port))
    router = Router(where, domain="scan", claim_after=claim_after)
    signal.signal(signal.SIGTERM, lambda *_: router.stop())
    _let_another_thread_have(signal.SIGTERM)
    print("ready", flush=True)  # noqa: T201 - what the test waits for
    router.run()
    router.close()


def _let_another_thread_have(number):
    """The system may hand a signal to any thread: here it never is the one that calls run."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})


if __name__ == "__main__":
    main()
