"""A quorum queue counts deliveries: who waits for a message elsewhere must not use them up."""

import asyncio
import multiprocessing
from contextlib import asynccontextmanager, suppress
from itertools import count

import aio_pika
import psycopg
import pytest
from faststream import AckPolicy
from faststream.rabbit import Channel, QueueType, RabbitBroker, RabbitQueue

from oncekey import Once, StoreError
from oncekey.messages import AsyncInbox, Message, acknowledged, by_fields
from oncekey.messages.dead_letters import dead_letters
from oncekey.messages.faststream import InboxMiddleware
from tests.patience import PATIENCE, until_async
from tests.system.rabbitmq.consumer import die_of_messages

FORKS = multiprocessing.get_context("forkserver")
NAMES = count(1)
LIMIT = 1


class QuorumQueue:
    """A queue that gives a message up after its second redelivery, and where it goes then."""

    def __init__(self, url):
        self.url = url
        self.name = f"limited{next(NAMES)}"
        self.arguments = {
            "x-queue-type": "quorum",
            "x-delivery-limit": LIMIT,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{self.name}-dead",
        }

    async def open(self):
        self.connection = await aio_pika.connect(self.url)
        self.channel = await self.connection.channel()
        self.dead = await self.channel.declare_queue(f"{self.name}-dead")
        self.replies = await self.channel.declare_queue(f"{self.name}-replies")
        return self

    async def declare(self, channel, **arguments):
        return await channel.declare_queue(
            self.name, durable=True, arguments=self.arguments | arguments
        )

    async def place(self, exchange="", routing_key="", **properties):
        message = aio_pika.Message(
            b'{"order": 7}',
            content_type="application/json",
            reply_to=self.replies.name,
            **{"message_id": "m-1"} | properties,
        )
        chosen = self.channel.default_exchange
        if exchange:
            chosen = await self.channel.get_exchange(exchange)
        await chosen.publish(message, routing_key=routing_key or self.name)

    async def dead_letters(self):
        found = await self.channel.declare_queue(self.dead.name, passive=True)
        return found.declaration_result.message_count

    async def reply(self):
        async with asyncio.timeout(PATIENCE), self.replies.iterator() as replies:
            async for reply in replies:
                await reply.ack()
                return reply.body.decode()
        raise AssertionError("the queue was closed")

    @asynccontextmanager
    async def served(self, inbox, handler, prefetch=None, **options):
        broker = RabbitBroker(self.url, logger=None)
        guard = InboxMiddleware(inbox, **options)
        broker.add_middleware(guard)
        broker.subscriber(
            RabbitQueue(
                self.name, queue_type=QueueType.QUORUM, durable=True, arguments=self.arguments
            ),
            ack_policy=AckPolicy.NACK_ON_ERROR,
            channel=Channel(prefetch_count=prefetch),
        )(handler)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


@pytest.fixture
async def queue(rabbit_server):
    queue = await QuorumQueue(rabbit_server.url).open()
    yield queue
    await queue.connection.close()


class Refusals:
    """How often a claim was refused, as an observer hears it."""

    def __init__(self):
        self.count = 0

    def __call__(self, event):
        self.count += event.name == "busy"


async def bill(order: int) -> str:
    raise AssertionError("nobody may run it")


CONSUMER = f"billing/{__name__}.bill"


@pytest.mark.parametrize("wait", [0, "10s"])
async def test_a_message_in_progress_elsewhere_is_no_dead_letter(queue, wait):
    """It is refused more often than the queue would deliver it."""
    refusals = Refusals()
    once = Once("memory://", observers=[refusals])
    elsewhere = AsyncInbox(once, CONSUMER, lease="1h")

    async def refused_too_often():
        assert await queue.dead_letters() == 0
        return refusals.count > LIMIT + 1

    async with (
        queue.served(AsyncInbox(once, "billing"), bill, wait=wait),
        elsewhere.leased(Message(id="m-1")) as delivery,
    ):
        await queue.place()
        await until_async(refused_too_often)
        await delivery.complete("elsewhere")
        assert await queue.reply() == "elsewhere"
    assert await queue.dead_letters() == 0
    await elsewhere.aclose()


async def test_a_delayed_message_comes_back_as_it_was(queue):
    """With its routing key, its properties, and the retries that somebody counts."""
    events = await queue.channel.declare_exchange(f"{queue.name}-events", "topic")
    consuming = await queue.connection.channel()
    limited = await queue.declare(consuming)
    await limited.bind(events, "order.*")
    once = Once("memory://")
    inbox = AsyncInbox(once, "billing", key=by_fields("order"))
    retries = [{"queue": "somewhere", "count": 3, "reason": "rejected"}]
    await queue.place(
        events.name,
        "order.placed",
        correlation_id="c-1",
        headers={"mark": "1", "x-death": retries},
        expiration=3600,
    )
    seen = []
    marks = AsyncInbox(once, "billing", lease="1h")
    order = Message(type="order.placed", body=b'{"order": 7}')
    elsewhere = await marks.mark_processing(by_fields("order")(order))
    async with asyncio.timeout(PATIENCE), limited.iterator() as deliveries:
        async for delivered in deliveries:
            seen.append(delivered)
            if len(seen) > LIMIT + 2:
                await marks.mark_failed(elsewhere, "it was given up")
                async with acknowledged(delivered) as message, inbox.leased(message) as delivery:
                    assert delivery.number == 2
                break
            async with acknowledged(delivered, queue=limited) as message, inbox.leased(message):
                raise AssertionError("it is in progress")
    facts = [
        (one.message_id, one.routing_key, one.correlation_id, one.headers["mark"]) for one in seen
    ]
    assert facts == [("m-1", "order.placed", "c-1", "1")] * len(seen)
    assert [one.headers.get("oncekey-tries") for one in seen] == [None, 1, 2, 3]
    ours = [one["queue"] for one in seen[-1].headers["x-death"]]
    assert ours == ["oncekey.delay.4", "somewhere"]
    assert await queue.dead_letters() == 0
    await inbox.aclose()


async def test_a_store_that_is_down_costs_no_deliveries(queue):
    consuming = await queue.connection.channel()
    limited = await queue.declare(consuming)
    await queue.place()
    deliveries = 0
    async with asyncio.timeout(PATIENCE), limited.iterator() as delivered_ones:
        async for delivered in delivered_ones:
            async with acknowledged(delivered):
                deliveries += 1
                if deliveries <= LIMIT + 2:
                    raise StoreError("down", happened=False)
            if deliveries > LIMIT + 2:
                break
    assert await queue.dead_letters() == 0


async def test_half_of_the_prefetch_may_wait_here(queue):
    """Or nothing else would be processed. The first waits, the second is delayed."""
    refusals, tried = Refusals(), []
    once = Once("memory://", observers=[refusals])
    elsewhere = AsyncInbox(once, CONSUMER, lease="1h")
    async with (
        queue.served(AsyncInbox(once, "billing"), bill, prefetch=2, wait="1h"),
        elsewhere.leased(Message(id="m-1")) as first,
        elsewhere.leased(Message(id="m-2")) as second,
    ):
        await queue.place()
        await until_async(lambda: refusals.count)
        await queue.place(message_id="m-2")

        async def delayed():
            with suppress(aio_pika.exceptions.ChannelNotFoundEntity):
                channel = await queue.connection.channel()
                found = await channel.declare_queue("oncekey.delay.1", passive=True)
                tried.append(found.declaration_result.message_count)
            return tried and tried[-1] > 0

        await until_async(delayed)
        await first.complete("the first")
        await second.complete("the second")
        replies = {await queue.reply(), await queue.reply()}
        assert replies == {"the first", "the second"}
    await elsewhere.aclose()


async def test_a_message_that_cannot_be_delayed_is_held(queue, caplog):
    """Where the queue has an order, or its name is not known."""
    consuming = await queue.connection.channel()
    limited = await queue.declare(consuming, **{"x-single-active-consumer": True})
    inbox = AsyncInbox("memory://", "billing", lease="1s")
    await inbox.mark_processing("m-1")
    await queue.place()
    async with asyncio.timeout(PATIENCE), limited.iterator() as deliveries:
        async for delivered in deliveries:
            async with (
                acknowledged(delivered, queue=limited) as message,
                inbox.leased(message) as delivery,
            ):
                assert delivery.number == 2
            if await inbox.is_processed("m-1"):
                break
    assert (delivered.redelivered, message.deliveries) == (True, 2)
    await inbox.aclose()


async def test_a_message_that_kills_its_consumers_is_given_up_as_its_queue_would(
    queue, postgres_url
):
    """The queue counts the deliveries of each delayed copy anew, and we do not."""
    inbox = AsyncInbox(postgres_url, "billing")
    await inbox.migrate()
    await inbox.aclose()
    await queue.declare(queue.channel)
    await queue.place()
    deaths = 0
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        while not (letters := dead_letters(postgres_url)):
            busy = FORKS.Event()
            arguments = (queue.url, queue.name, queue.arguments, postgres_url, busy)
            consumer = FORKS.Process(target=die_of_messages, args=arguments, daemon=True)
            consumer.start()

            def ended(busy=busy, consumer=consumer):
                if busy.is_set():  # the message is delayed, and then its time has come
                    connection.execute("UPDATE processed_messages SET lease_end = now()")
                return dead_letters(postgres_url) or not consumer.is_alive()

            await until_async(ended)
            deaths += not consumer.is_alive()
            consumer.terminate()
            consumer.join()
            assert deaths <= LIMIT + 1
    assert [one.key for one in letters] == ["m-1"]
    assert deaths == LIMIT + 1
    assert await queue.dead_letters() == 0  # it is among those of the inbox
