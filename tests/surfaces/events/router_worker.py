"""A router in a process of its own: python -m tests.surfaces.events.router_worker URL CLAIM_AFTER

It says ready when it starts, and ends on SIGTERM when what it has in hand is handled.
"""

import signal
import sys

from oncekey.events import Router


def main():
    url, claim_after = sys.argv[1:]
    router = Router(url, domain="scan", claim_after=claim_after)
    signal.signal(signal.SIGTERM, lambda *_: router.stop())
    print("ready", flush=True)  # noqa: T201 - what the test waits for
    router.run()
    router.close()


if __name__ == "__main__":
    main()
