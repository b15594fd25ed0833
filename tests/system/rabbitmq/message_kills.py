"""Messages in a quorum queue that gives up after 20 deliveries, while consumers are killed.

    python -m tests.system.rabbitmq.message_kills --messages 200 --lease 5min

It prints what became of the messages, and exits with 1 if one was lost or done twice.
"""

import argparse
import asyncio
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import aio_pika
import psycopg
from faststream import AckPolicy
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue
from msgspec import Struct

from oncekey.messages import AsyncInbox
from oncekey.messages.faststream import CurrentDelivery, InboxMiddleware
from tests.messages.fast import transaction_to
from tests.patience import PATIENCE
from tests.servers.postgres import serving
from tests.system.rabbitmq.server import RabbitServer

FORKS = multiprocessing.get_context("forkserver")
NAME = "killed"
PRELOADED = ["faststream.rabbit", "oncekey.messages.faststream", "tests.messages.fast"]
WORKERS, PREFETCH = 3, 5


class Settings(Struct):
    """What one run is about. Times are seconds; the lease is as an inbox takes it."""

    messages: int
    lease: str
    kill_every: float = 5.0
    work: float = 4.0
    seed: int = 7
    delivery_limit: int = 20
    most_kills: float = math.inf
    only_busy: bool = False
    """Whether no consumer is killed but one that has begun with a message."""
    wait: str = "10s"
    patience: float = 2 * PATIENCE
    """How long nothing may be done before the run ends: longer than the lease."""


class Report(Struct):
    """What came of it. `executions` counts the handlers that were begun."""

    lease: str
    messages: int
    done_once: int
    done_twice: int
    dead_letters: int
    left: int
    executions: int
    kills: int
    seconds: int


def queue_of(settings):
    arguments = {
        "x-delivery-limit": settings.delivery_limit,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": f"{NAME}-dead",
    }
    return RabbitQueue(NAME, queue_type=QueueType.QUORUM, durable=True, arguments=arguments)


def consume(amqp, database, settings):
    """Process messages until somebody kills this process."""
    asyncio.run(_consume(amqp, database, settings))


async def _consume(amqp, database, settings):
    inbox = AsyncInbox(database, "billing", lease=settings.lease, observers=())
    guard = InboxMiddleware(inbox, wait=settings.wait)
    broker = RabbitBroker(amqp, middlewares=[guard], logger=None)

    @broker.subscriber(
        queue_of(settings),
        ack_policy=AckPolicy.NACK_ON_ERROR,
        channel=Channel(prefetch_count=PREFETCH),
    )
    async def bill(number: int, delivery: CurrentDelivery) -> None:
        async with transaction_to(database) as connection:
            values = (number, os.getpid())
            await connection.execute("INSERT INTO begun VALUES (%s, %s)", values)
        await asyncio.sleep(random.uniform(0, settings.work))  # noqa: S311 - no secret
        async with transaction_to(database) as connection:
            await connection.execute("INSERT INTO done VALUES (%s)", (number,))
            await delivery.complete(connection=connection)

    await broker.start()
    await asyncio.Event().wait()


async def run(amqp, database, settings):
    """Place the messages, and kill consumers until all of them are done."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE begun (number integer, worker integer); "
            "CREATE TABLE done (number integer)"
        )
        rabbit = await aio_pika.connect(amqp)
        channel = await rabbit.channel()
        dead = await channel.declare_queue(f"{NAME}-dead", durable=True)
        arguments = queue_of(settings).arguments
        await channel.declare_queue(NAME, durable=True, arguments=arguments)
        for number in range(settings.messages):
            message = aio_pika.Message(
                str(number).encode(),
                message_id=f"m-{number}",
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            )
            await channel.default_exchange.publish(message, routing_key=NAME)

        async def dead_letters():
            found = await channel.declare_queue(dead.name, passive=True)
            return found.declaration_result.message_count

        def count(what):
            return connection.execute(f"SELECT {what}").fetchone()[0]

        def at_work():
            found = connection.execute(
                "SELECT worker FROM begun WHERE number NOT IN (SELECT number FROM done)"
            )
            return {worker for (worker,) in found}

        began = time.monotonic()
        kills = await asyncio.to_thread(_kill, amqp, database, settings, count, at_work)
        twice = "count(*) FROM (SELECT FROM done GROUP BY number HAVING count(*) > 1) AS twice"
        once = "count(*) FROM (SELECT FROM done GROUP BY number HAVING count(*) = 1) AS once"
        report = Report(
            lease=settings.lease,
            messages=settings.messages,
            done_once=count(once),
            done_twice=count(twice),
            dead_letters=await dead_letters(),
            left=settings.messages - count("count(DISTINCT number) FROM done"),
            executions=count("count(*) FROM begun"),
            kills=kills,
            seconds=round(time.monotonic() - began),
        )
        await channel.queue_delete(NAME)
        await channel.queue_delete(dead.name)
        await rabbit.close()
    return report


def _kill(amqp, database, settings, count, at_work):
    """Return how many consumers were killed until every message was done, or none is any more."""
    chance, kills = random.Random(settings.seed), 0  # noqa: S311 - no secret
    FORKS.set_forkserver_preload(PRELOADED)
    with ExitStack() as stack:

        def start():
            process = FORKS.Process(target=consume, args=(amqp, database, settings))
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
            return process

        workers = [start() for _ in range(WORKERS)]
        done, give_up = 0, time.monotonic() + settings.patience
        next_kill = time.monotonic() + settings.kill_every
        while (found := count("count(DISTINCT number) FROM done")) < settings.messages:
            if found > done:
                done, give_up = found, time.monotonic() + settings.patience
            if time.monotonic() > give_up:
                break
            if time.monotonic() > next_kill and kills < settings.most_kills:
                busy = at_work() if settings.only_busy else {one.pid for one in workers}
                victims = [one for one, worker in enumerate(workers) if worker.pid in busy]
                if victims:
                    victim = chance.choice(victims)
                    workers[victim].kill()
                    workers[victim].join()
                    workers[victim], kills = start(), kills + 1
                    next_kill = time.monotonic() + settings.kill_every
            time.sleep(0.1)
    return kills


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--lease", action="append", help="may be given several times")
    parser.add_argument("--kill-every", type=float, default=5.0)
    parser.add_argument("--work", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=7)
    said = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        rabbit = RabbitServer(Path(folder)).start()
        stack.callback(rabbit.stop)
        postgres = stack.enter_context(serving())
        for lease in said.lease or ["5min", "30s", "5s"]:
            settings = Settings(said.messages, lease, said.kill_every, said.work, said.seed)
            report = asyncio.run(run(rabbit.url, postgres.new_database(), settings))
            sys.stdout.write(f"{report}\n")
            sys.stdout.flush()
            good = good and report.done_once == said.messages and report.dead_letters == 0
    return 0 if good else 1


if __name__ == "__main__":
    from tests.system.rabbitmq import message_kills  # by its name, as the processes import it

    sys.exit(message_kills.main())
