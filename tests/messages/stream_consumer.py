"""A consumer of FastStream in a process of its own: it may die between its work and its reply."""

import asyncio
import os
import signal
from functools import partial

from faststream import AckPolicy, BaseMiddleware
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.redis import RedisBroker, StreamSub
from nats.js.api import ConsumerConfig

from oncekey.messages import AsyncInbox
from oncekey.messages.faststream import CurrentConnection, CurrentDelivery, InboxMiddleware
from tests.messages.fast import transaction_to

IDLE = 3_600_000
"""Milliseconds after which a message that nobody acknowledged is delivered again."""


def dying(pipe):
    """The reply is about to be published, and the process is gone; it tells what it had."""

    class Dying(BaseMiddleware):
        async def publish_scope(self, call_next, cmd):
            pipe.send(getattr(self.msg, "reply", None))
            os.kill(os.getpid(), signal.SIGKILL)

    return Dying


def consume(pipe, broker_url, name, database, mode, *, dies):
    """Until it is killed, or told to stop."""
    asyncio.run(_consume(pipe, broker_url, name, database, mode, dies=dies))


async def _consume(pipe, broker_url, name, database, mode, *, dies):
    inbox = AsyncInbox(database, "billing", observers=())
    transaction = partial(transaction_to, database)
    guard = InboxMiddleware(inbox, transaction=transaction if mode == "atomic" else None)
    options = {"middlewares": [guard, *([dying(pipe)] if dies else [])], "logger": None}
    nats = broker_url.startswith("nats")
    broker = (NatsBroker if nats else RedisBroker)(broker_url, **options)

    async def bill(number: int, connection: CurrentConnection, delivery: CurrentDelivery) -> str:
        if mode == "atomic":
            await connection.execute("INSERT INTO orders (number) VALUES (%s)", (str(number),))
        else:
            async with transaction() as own:
                await own.execute("INSERT INTO orders (number) VALUES (%s)", (str(number),))
                await delivery.complete(f"receipt of {number}", connection=own)
        return f"receipt of {number}"

    _subscribed(broker, name, bill, nats=nats)
    guard.check(broker)
    await broker.start()
    await asyncio.to_thread(pipe.recv)
    await broker.stop()
    await inbox.aclose()


def _subscribed(broker, name, bill, *, nats):
    policy = {"ack_policy": AckPolicy.NACK_ON_ERROR}
    if nats:
        subscribers = [
            broker.subscriber(
                f"{name}.placed",
                stream=JStream(name, subjects=[f"{name}.>"]),
                durable="billing",
                pull_sub=PullSub(timeout=0.1),
                config=ConsumerConfig(ack_wait=IDLE / 1000),
                **policy,
            )
        ]
        publisher = broker.publisher(f"{name}-replies")
    else:
        place = {"group": "billing", "consumer": f"c-{os.getpid()}", "polling_interval": 50}
        subscribers = [
            broker.subscriber(stream=StreamSub(name, last_id=">", **place), **policy),
            broker.subscriber(stream=StreamSub(name, min_idle_time=IDLE, **place), **policy),
        ]
        publisher = broker.publisher(stream=f"{name}-replies")
    handler = publisher(bill)
    for subscriber in subscribers:
        handler = subscriber(handler)
