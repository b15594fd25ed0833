"""An outbox whose relays send to RabbitMQ."""

import asyncio
from functools import partial
from time import monotonic

import aio_pika
import pytest
from celery import Celery  # type: ignore[import-untyped]  # it has no types
from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitMessage

from oncekey.messages import AsyncInbox, from_amqp
from oncekey.messages.faststream import InboxMiddleware
from oncekey.outbox import AsyncOutbox, AsyncRelay, OutboxMessage
from oncekey.outbox.targets import CeleryTasks, MessageRefusedError, RabbitMQ, target_of
from tests.messages.fast import Heard, transaction_to


@pytest.fixture
async def channel(rabbit_server):
    async with await aio_pika.connect(rabbit_server.url) as connection:
        yield await connection.channel()


async def published(target, *names, to, body=b"7"):
    messages = [
        OutboxMessage(id=name, to=to, type="paid", attributes={"tenant": "a", "n": 3}, body=body)
        for name in names
    ]
    return [*await target.publish(messages, monotonic() + 30)]


async def test_a_queue_has_it_with_its_id(rabbit_server, channel):
    queue = await channel.declare_queue("outbox", durable=True)
    target = target_of(rabbit_server.url)
    assert await published(target, "m-1", to=queue.name) == [None]
    delivered = await queue.get()
    await delivered.ack()
    found = from_amqp(delivered)
    assert (found.id, found.type, found.body) == ("m-1", "paid", b"7")
    assert found.attributes == {"tenant": "a", "n": 3}
    assert delivered.delivery_mode == aio_pika.DeliveryMode.PERSISTENT
    await target.aclose()


async def test_what_no_queue_takes_is_refused(rabbit_server, channel):
    target = target_of(rabbit_server.url)
    (found,) = await published(target, "m-1", to="nowhere")
    assert isinstance(found, MessageRefusedError)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    queue = await channel.declare_queue("outbox-full", durable=True, arguments=full)
    found = [(await published(target, name, to=queue.name))[0] for name in ("m-1", "m-2")]
    assert [type(one) for one in found] == [type(None), MessageRefusedError]
    await target.aclose()


async def test_an_exchange_routes_by_the_destination(rabbit_server, channel):
    exchange = await channel.declare_exchange("outbox-topics", "topic", durable=True)
    queue = await channel.declare_queue("outbox-paid", durable=True)
    await queue.bind(exchange, "orders.*")
    target = RabbitMQ(rabbit_server.url, exchange=exchange.name)
    assert await published(target, "m-1", to="orders.paid") == [None]
    (lost,) = await published(target, "m-2", to="mails.sent")
    assert isinstance(lost, MessageRefusedError)
    await (await queue.get()).ack()
    await target.aclose()


async def test_a_broker_that_is_not_there_does_not_count():
    with pytest.raises(ConnectionError):
        await published(RabbitMQ("amqp://127.0.0.1:9"), "m-1", to="orders")


async def test_a_job_of_celery_is_confirmed(rabbit_server, channel):
    """Without confirmation a job that no queue takes would be lost, and count as sent."""
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    exchange = await channel.declare_exchange("outbox-jobs", "direct", durable=True)
    queue = await channel.declare_queue("outbox-jobs", durable=True, arguments=full)
    await queue.bind(exchange, "charge")
    app = Celery("shop", broker=rabbit_server.url, set_as_current=False)
    app.conf.task_routes = {
        name: {"exchange": "outbox-jobs", "routing_key": name} for name in ("charge", "lost")
    }
    target = CeleryTasks(app)
    (lost,) = await published(target, "0", to="lost", body=b"[7]")
    assert isinstance(lost, MessageRefusedError)
    found = [(await published(target, name, to="charge", body=b"[7]"))[0] for name in ("1", "2")]
    await target.aclose()
    assert found[0] is None
    assert isinstance(found[1], MessageRefusedError)
    delivered = await queue.get()
    await delivered.ack()
    assert delivered.headers["id"] == "1"


async def test_replies_of_faststream_go_through_it(rabbit_server, postgres_url, channel):
    inbox, outbox = AsyncInbox(postgres_url, "billing"), AsyncOutbox(postgres_url)
    keeping = InboxMiddleware(
        inbox, transaction=partial(transaction_to, postgres_url), outbox=outbox
    )
    broker, heard = RabbitBroker(rabbit_server.url, middlewares=[keeping], logger=None), Heard()
    billing = broker.subscriber("outbox-orders", ack_policy=AckPolicy.NACK_ON_ERROR)
    receipts = broker.publisher("outbox-receipts", headers={"tenant": "a"})

    @billing
    @receipts
    async def bill(order: dict[str, int]) -> dict[str, int]:
        return {"receipt": order["order"]}

    @broker.subscriber("outbox-receipts", ack_policy=AckPolicy.NACK_ON_ERROR)
    async def read(receipt: dict[str, int], message: RabbitMessage) -> None:
        await heard.add((receipt, message.headers["tenant"], message.content_type))

    async with broker:
        await broker.start()
        await broker.publish({"order": 7}, "outbox-orders", message_id="m-1")
        relay = AsyncRelay(postgres_url, rabbit_server.url, poll="10ms")
        running = asyncio.create_task(relay.run())
        assert await heard.wait_for(1) == [({"receipt": 7}, "a", "application/json")]
        relay.stop()
        await running
        await relay.aclose()
    await inbox.aclose()
    await outbox.aclose()
