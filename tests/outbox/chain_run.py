"""The three services of examples/chain on two brokers and PostgreSQL, everything killed at random.

`python -m tests.outbox.chain_run` starts the servers from their wheels and prints the figures.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from examples.chain.chain import Chain, Settings
from examples.chain.services import SERVICES
from tests.servers.nats import NatsServer
from tests.servers.postgres import serving
from tests.servers.redis import RedisServer

LASTING = {"appendonly": "yes", "appendfsync": "always"}


class ChainRun:
    """A PostgreSQL, a NATS and a Redis of its own, and a chain between them."""

    def __init__(self, folder, *, orders, pace=0.0, deadly=None, seed=1):
        self.chance = random.Random(seed)  # noqa: S311 - it decides who dies
        self.strikes = {"nats": 0, "redis": 0, "postgres": 0}
        self._stack = ExitStack()
        with ExitStack() as stack:
            stack.callback(self._stack.close)
            self.postgres = self._stack.enter_context(serving())
            self.nats = NatsServer(_made(folder / "nats"))
            self._stack.callback(self.nats.stop)
            self.redis = RedisServer(_made(folder / "redis"), **LASTING)
            self._stack.callback(self.redis.stop)
            settings = Settings(
                databases={name: self.postgres.new_database() for name in SERVICES},
                first=self.nats.start().url,
                second=self.redis.start().url,
                orders=orders,
                pace=pace,
                deadly=deadly or {},
                errors=folder / "workers.log",  # every outage ends some of them
            )
            self.chain = self._stack.enter_context(Chain(settings, seed=seed))
            stack.pop_all()

    def strike(self):
        """Kill a service or, more seldom, a server, and start it again. Return which."""
        name = self.chance.choice((*SERVICES, *SERVICES, *self.strikes))
        if name in SERVICES:
            return self.chain.kill(name)
        self.strikes[name] += 1
        if name == "postgres":
            self.postgres.stop(signal.SIGQUIT)
            self.postgres.start()
        else:
            server = self.nats if name == "nats" else self.redis
            server.kill()
            server.start()
        self.chain.reopen()
        return name

    def run(self, *, every, longest):
        """Strike at random, about every so many seconds, until all has arrived or time is up.

        Then wait until everything has arrived.
        """
        end = time.monotonic() + longest
        while time.monotonic() < end and not self.chain.settled():
            time.sleep(self.chance.uniform(0.5, 1.5) * every)
            self.strike()
            self.chain.tend()
        while not self.chain.settled():
            time.sleep(0.1)
            self.chain.tend()
        return self.chain.totals()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()


def _made(folder):
    folder.mkdir()
    return folder


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.outbox.chain_run", description=__doc__)
    parser.add_argument("--orders", type=int, default=2000)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between the kills")
    parser.add_argument("--longest", type=float, default=300.0, help="for so long at most")
    parser.add_argument("--pace", type=float, default=0.01, help="seconds between two orders")
    parser.add_argument("--seed", type=int, default=1, help="who is killed when")
    said = parser.parse_args()
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="oncekey-chain-") as folder,
        ChainRun(Path(folder), orders=said.orders, pace=said.pace, seed=said.seed) as run,
    ):
        totals = run.run(every=said.every, longest=said.longest)
        struck = ", ".join(f"{name} {count} times" for name, count in run.strikes.items())
    sys.stdout.write(f"{totals}; killed as well: {struck}; {time.monotonic() - begun:.0f} s\n")
    return 1 if totals.lost or totals.doubled else 0


if __name__ == "__main__":
    sys.exit(main())
