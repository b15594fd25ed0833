"""Kill relays while messages go through a broker to an inbox, and count what arrived.

    python -m tests.system.outbox.kills rabbitmq --messages 10000 --every 2

starts a PostgreSQL and the broker, each of which is killed and started again, and three relays. It
ends when everything has arrived, and fails if a message was lost, came twice or out of order.
"""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import aio_pika

from oncekey.messages import from_amqp
from tests.jobs.site import Worker
from tests.outbox.kill_run import JetStreamReader, KillRun, RedisReader
from tests.servers.nats import NatsServer
from tests.servers.postgres import serving
from tests.servers.redis import RedisServer
from tests.system.rabbitmq.server import RabbitServer

LASTING = {"appendonly": "yes", "appendfsync": "always"}
GONE = (
    aio_pika.exceptions.AMQPError,
    aio_pika.exceptions.ChannelInvalidStateError,
    OSError,
    asyncio.CancelledError,
)
"""What aio-pika raises when the broker is gone. It cancels those who wait for an answer."""
RECEIVER = "tests.system.outbox.celery_receiver"


class RabbitReader:
    """Reads a queue, one message after the other."""

    def __init__(self, url, name):
        self.url, self.to = url, name

    async def open(self):
        self._connection = await aio_pika.connect(self.url)
        self._channel = await self._connection.channel()
        self._queue = await self._channel.declare_queue(self.to, durable=True)

    async def next(self):
        try:
            if self._channel.is_closed:
                await self._connection.close()
                await self.open()
            delivered = await self._queue.get(fail=False)
        except GONE:
            await asyncio.sleep(0.1)
            return []
        if delivered is None:
            return []
        return [(from_amqp(delivered), partial(_acknowledge, delivered))]

    async def close(self):
        await self._connection.close()


async def _acknowledge(delivered):
    with suppress(*GONE):  # then it comes again
        await delivered.ack()


class CeleryReader:
    """Has a worker that receives the messages itself."""

    url = f"celery://{RECEIVER}:app"
    to = f"{RECEIVER}.keep"

    def __init__(self, broker, database, folder):
        self.environment = {"RECEIVER_BROKER": broker, "RECEIVER_DATABASE": database}
        self._log = folder / "worker.log"

    async def open(self):
        words = [
            *(sys.executable, "-m", "celery", "-A", RECEIVER, "worker", "--pool=solo"),
            *("--without-mingle", "--without-gossip", "--without-heartbeat"),
        ]
        self._worker = Worker(words, self.environment, self._log)

    async def next(self):
        await asyncio.sleep(0.1)
        return []

    async def close(self):
        await asyncio.to_thread(self._worker.stop)


@contextmanager
def killing(name, folder, **options):
    """Yield a run through the broker of this name, whose servers are killed and started again."""
    with ExitStack() as stack:
        postgres = stack.enter_context(serving())
        database = postgres.new_database()
        if name == "jetstream":
            server = NatsServer(folder)
        elif name == "redis":
            server = RedisServer(folder, **LASTING)
        else:
            server = RabbitServer(folder)
        stack.callback(server.stop)
        url = server.start().url
        reader = {
            "jetstream": lambda: JetStreamReader(url, "orders"),
            "rabbitmq": lambda: RabbitReader(url, "orders"),
            "redis": lambda: RedisReader(url, "orders"),
            "celery": lambda: CeleryReader(url, database, folder),
        }[name]()

        def restart_broker():
            server.kill()
            server.start()

        def restart_postgres():
            postgres.stop(signal.SIGQUIT)
            postgres.start()

        yield KillRun(database, reader, restarts=(restart_broker, restart_postgres), **options)


BROKERS = ("jetstream", "rabbitmq", "redis", "celery")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("broker", choices=BROKERS)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between the kills")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two messages")
    parser.add_argument("--seed", type=int, default=1, help="who is struck when")
    said = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL + 1)  # clients complain of each restart
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="oncekey-kills-") as folder,
        killing(
            said.broker,
            Path(folder),
            messages=said.messages,
            at_once=3,
            pause=said.pause,
            seed=said.seed,
        ) as run,
    ):
        asyncio.run(run.run(kills=3, every=said.every))
        sys.stdout.write(f"{said.broker}: {run.figures()}; {time.monotonic() - begun:.0f} s\n")


if __name__ == "__main__":
    main()
