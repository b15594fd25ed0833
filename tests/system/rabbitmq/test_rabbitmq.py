"""The inbox and a real RabbitMQ, through FastStream and through aio-pika alone."""

import asyncio
import multiprocessing
import signal
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import aio_pika
import amqp  # type: ignore[import-untyped]  # comes with kombu
import psycopg
import pytest
from faststream import AckPolicy
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from oncekey import ConfigurationError, Once
from oncekey.messages import AsyncInbox, Message, acknowledged
from oncekey.messages.faststream import CurrentDelivery, InboxMiddleware
from tests.messages.fast import Losing, transaction_to
from tests.patience import PATIENCE
from tests.system.rabbitmq.consumer import bill as bill_in_database
from tests.system.rabbitmq.consumer import consume

NAMES = count(1)
FORKS = multiprocessing.get_context("forkserver")


class Line:
    """A queue, another one for replies, and a channel of aio-pika to both."""

    def __init__(self, url):
        self.url = url
        self.name = f"orders{next(NAMES)}"

    async def open(self):
        self.connection = await aio_pika.connect_robust(self.url)
        self.channel = await self.connection.channel()
        self.replies = await self.channel.declare_queue(f"{self.name}-replies")

    async def place(self, body=b"7", message_id="m-1"):
        message = aio_pika.Message(
            body,
            message_id=message_id,
            reply_to=self.replies.name,
            content_type="application/json",
        )
        await self.channel.default_exchange.publish(message, routing_key=self.name)

    async def place_without_id(self):
        """As other clients do: aio-pika makes one up for every message that has none."""

        def publish():
            place = f"127.0.0.1:{self.connection.transport.connection.url.port}"
            with amqp.Connection(place) as connection:
                message = amqp.Message(b"7", content_type="application/json")
                connection.channel().basic_publish(message, routing_key=self.name)

        await asyncio.to_thread(publish)

    async def reply(self):
        async with asyncio.timeout(PATIENCE), self.replies.iterator() as replies:
            async for reply in replies:
                await reply.ack()
                return reply.body.decode()
        raise AssertionError("the queue was closed")

    async def left(self, queue=None):
        """How many messages wait in the queue."""
        found = await self.channel.declare_queue(queue or self.name, passive=True)
        return found.declaration_result.message_count

    @asynccontextmanager
    async def served(self, *middlewares, handler, queue=None):
        broker = RabbitBroker(self.url, middlewares=middlewares, logger=None)
        queue = queue or self.name
        broker.subscriber(
            queue, ack_policy=AckPolicy.NACK_ON_ERROR, channel=Channel(prefetch_count=5)
        )(handler)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


@pytest.fixture
async def line(rabbit_server):
    line = Line(rabbit_server.url)
    await line.open()
    yield line
    await line.connection.close()


@pytest.fixture
async def inbox():
    inbox = AsyncInbox("memory://", "billing")
    yield inbox
    await inbox.aclose()


async def test_a_lost_reply_is_published_by_the_redelivery(line, inbox):
    ran, losing = [], Losing(2)

    async def bill(number: int) -> str:
        ran.append(number)
        return f"receipt of {number}"

    async with line.served(InboxMiddleware(inbox), losing, handler=bill):
        await line.place()
        assert await line.reply() == "receipt of 7"
    assert (ran, losing.losses) == ([7], 0)
    assert await line.left() == 0


async def test_an_error_frees_the_message_so_that_the_redelivery_runs(line, inbox):
    numbers = []

    async def bill(number: int, delivery: CurrentDelivery) -> str:
        numbers.append(delivery.number)
        if delivery.number < 3:
            raise ValueError("not yet")
        return "done"

    async with line.served(InboxMiddleware(inbox), handler=bill):
        await line.place()
        assert await line.reply() == "done"
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("wait", ["20s", 0])
async def test_a_message_in_progress_elsewhere_comes_later(line, inbox, wait):
    """It waits unacknowledged, or it is put back after a pause: neither is a hot loop."""
    refused, entered = [], asyncio.Event()

    def observe(event):
        if event.name == "busy":
            refused.append(event)
            entered.set()

    async def bill(number: int) -> str:
        raise AssertionError("nobody may run it")

    once = Once("memory://", observers=[observe])
    guarded = AsyncInbox(once, "billing")
    elsewhere = AsyncInbox(once, f"billing/{__name__}.{bill.__qualname__}")
    middleware = InboxMiddleware(guarded, wait=wait)
    async with (
        asyncio.timeout(PATIENCE),
        line.served(middleware, handler=bill),
        elsewhere.leased(Message(id="m-1")) as delivery,
    ):
        await line.place()
        await entered.wait()
        await delivery.complete("elsewhere")
        assert await line.reply() == "elsewhere"
    assert len(refused) == 1
    await guarded.aclose()


async def test_a_message_without_an_id_goes_where_dead_letters_go(line, inbox, caplog):
    dead = await line.channel.declare_queue(f"{line.name}-dead")
    queue = RabbitQueue(
        line.name,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name},
    )

    async def bill(number: int) -> str:
        raise AssertionError("nobody may run it")

    async with line.served(InboxMiddleware(inbox), handler=bill, queue=queue):
        await line.place_without_id()
        async with asyncio.timeout(PATIENCE), dead.iterator() as letters:
            async for letter in letters:
                await letter.ack()
                break
    assert "it lacks the AMQP property message_id" in caplog.text


async def test_a_quorum_queue_counts_deliveries(line, inbox):
    counts = []
    queue = RabbitQueue(line.name, queue_type=QueueType.QUORUM, durable=True)

    async def bill(number: int, delivery: CurrentDelivery) -> str:
        counts.append(delivery.message.deliveries)
        if len(counts) < 3:
            raise ValueError("not yet")
        return "done"

    async with line.served(InboxMiddleware(inbox), handler=bill, queue=queue):
        await line.place()
        assert await line.reply() == "done"
    assert counts == [None, 2, 3]


async def test_killed_between_work_and_reply(line, postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (number text)")
        await line.channel.declare_queue(line.name, durable=True)
        process = FORKS.Process(target=consume, args=(line.url, line.name, postgres_url))
        process.start()
        try:
            await line.place()
            await asyncio.to_thread(process.join, PATIENCE)
            assert process.exitcode == -signal.SIGKILL
        finally:
            process.kill()
            process.join()
        assert await line.left(line.replies.name) == 0
        inbox = AsyncInbox(postgres_url, "billing")
        guard = InboxMiddleware(inbox, transaction=partial(transaction_to, postgres_url))
        async with line.served(guard, handler=bill_in_database):
            assert await line.reply() == "receipt of 7"
        await inbox.aclose()
        assert connection.execute("SELECT number FROM orders").fetchall() == [("7",)]


async def test_aio_pika_alone(line, inbox, caplog):
    """In progress elsewhere, then an error, then done; and a message that has no id."""
    queue = await line.channel.declare_queue(line.name, durable=True)
    elsewhere = await inbox.mark_processing("m-1")
    numbers = []
    await line.place_without_id()
    await line.place()

    async def process(delivered):
        async with acknowledged(delivered) as message, inbox.leased(message) as delivery:
            numbers.append(delivery.number)
            if delivery.number == 2:
                raise ValueError("not yet")

    async with asyncio.timeout(PATIENCE), queue.iterator() as deliveries:
        async for delivered in deliveries:
            if len(numbers) == 1:
                await process(delivered)
                break
            if "oncekey-tries" in delivered.headers:  # it was put back
                await inbox.mark_failed(elsewhere, "it was given up")
                with pytest.raises(ValueError, match="not yet"):
                    await process(delivered)
            else:
                await process(delivered)
    assert numbers == [2, 3]
    assert await inbox.is_processed("m-1")
    assert await line.left() == 0
    assert "a message was rejected: the message has no id" in caplog.text


async def test_what_aio_pika_has_acknowledged_is_refused(line, inbox):
    """If it were in progress elsewhere, or failed, it would be lost."""
    queue = await line.channel.declare_queue(line.name, durable=True)
    await line.place()
    async with asyncio.timeout(PATIENCE), queue.iterator(no_ack=True) as deliveries:
        delivered = await anext(deliveries)
    with pytest.raises(ConfigurationError, match="no_ack=False"):
        async with acknowledged(delivered) as message, inbox.leased(message):
            raise AssertionError("it might be lost")
