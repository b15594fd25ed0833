"""A consumer in a process of its own, which dies between its work and its reply."""

import asyncio
import os
import signal
from functools import partial

from faststream import AckPolicy, BaseMiddleware
from faststream.rabbit import QueueType, RabbitBroker, RabbitQueue

from oncekey.messages import AsyncInbox
from oncekey.messages.faststream import CurrentConnection, InboxMiddleware
from tests.messages.fast import transaction_to


class Dying(BaseMiddleware):
    """The reply is about to be published, and the process is gone."""

    async def publish_scope(self, call_next, cmd):
        os.kill(os.getpid(), signal.SIGKILL)


def consume(url, queue, database):
    """Until it kills itself."""
    asyncio.run(_consume(url, queue, database))


async def _consume(url, queue, database):
    inbox = AsyncInbox(database, "billing", observers=())
    guard = InboxMiddleware(inbox, transaction=partial(transaction_to, database))
    broker = RabbitBroker(url, middlewares=[guard, Dying], logger=None)
    broker.subscriber(queue, ack_policy=AckPolicy.NACK_ON_ERROR)(bill)
    await broker.start()
    await asyncio.Event().wait()


async def bill(number: int, connection: CurrentConnection) -> str:
    """The order is in the database, and the reply says so."""
    await connection.execute("INSERT INTO orders (number) VALUES (%s)", (str(number),))
    return f"receipt of {number}"


def die_of_messages(url, name, arguments, database, busy):
    """Until a message kills it, or it is told to stop.

    Tell when a message is in progress elsewhere, and so is delayed.
    """
    asyncio.run(_die_of_messages(url, name, arguments, database, busy))


async def _die_of_messages(url, name, arguments, database, busy):
    def tell(event):
        if event.name == "busy":
            busy.set()

    queue = RabbitQueue(name, queue_type=QueueType.QUORUM, durable=True, arguments=arguments)
    inbox = AsyncInbox(database, "billing", lease="1h", observers=[tell])
    broker = RabbitBroker(url, middlewares=[InboxMiddleware(inbox, wait=0)], logger=None)
    broker.subscriber(queue, ack_policy=AckPolicy.NACK_ON_ERROR)(deadly)
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_stop.set)
    await broker.start()
    await told_to_stop.wait()
    await broker.stop()  # when what it handles is acknowledged
    await inbox.aclose()


async def deadly(order: dict[str, int]) -> None:
    """As if there were too little memory for it."""
    os.kill(os.getpid(), signal.SIGKILL)
