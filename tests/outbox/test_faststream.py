"""Replies of FastStream's handlers that go through the outbox, on a real JetStream."""

from functools import partial

import nats
import psycopg
import pytest
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, TestKafkaBroker
from faststream.nats import NatsResponse
from faststream.redis import RedisBroker, StreamSub
from pydantic import BaseModel

from oncekey import ConfigurationError
from oncekey.messages import AsyncInbox, by_fields
from oncekey.messages.faststream import CurrentConnection, CurrentDelivery, InboxMiddleware
from oncekey.outbox import AsyncOutbox, AsyncRelay, Message
from tests.messages.fast import Jet, transaction_to
from tests.messages.ways_async import WAYS
from tests.servers.nats_fixtures import nats_server, stream_name

__all__ = ["nats_server", "stream_name"]


class Order(BaseModel):
    order: int


class Receipt(BaseModel):
    number: int
    total: int


@pytest.fixture
async def inbox(postgres_url):
    inbox = AsyncInbox(postgres_url, "billing", key=by_fields("order"))
    yield inbox
    await inbox.aclose()


@pytest.fixture
async def outbox(postgres_url):
    outbox = AsyncOutbox(postgres_url)
    yield outbox
    await outbox.aclose()


@pytest.fixture
def middleware(inbox, outbox, postgres_url):
    """It keeps replies in the outbox."""
    return InboxMiddleware(inbox, transaction=partial(transaction_to, postgres_url), outbox=outbox)


@pytest.fixture
async def jet(middleware, nats_server, stream_name):
    """A broker, and a stream for its replies."""
    client = await nats.connect(nats_server.url)
    await client.jetstream().add_stream(name=f"{stream_name}-replies")
    yield Jet(nats_server.url, stream_name, middlewares=[middleware])
    await client.close()


def kept(url):
    """The messages in the outbox."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT destination, message_key, attributes::json, body FROM outbox_messages "
            "ORDER BY number"
        ).fetchall()


async def test_a_reply_is_committed_with_the_work_and_sent_once(
    jet, outbox, postgres_url, nats_server
):
    rows, attempts = WAYS["psycopg"][0](postgres_url), []

    @jet.subscriber()
    @jet.publisher()
    async def bill(
        order: Order, connection: CurrentConnection, delivery: CurrentDelivery
    ) -> Receipt:
        attempts.append(delivery.number)
        await rows.write(connection, order.order)
        await outbox.put(connection, Message(body="mail"), to="mails", sender=delivery)
        if len(attempts) == 1:
            raise ValueError("the first attempt is rolled back")
        return Receipt(number=order.order, total=40)

    async with jet.running():
        await jet.place(b'{"order": 7}', "m-1")
        await jet.acknowledged()
        await jet.place(b'{"order": 7}', "m-2")  # a duplicate
        await jet.acknowledged(2)
        (mail, reply) = kept(postgres_url)
        assert mail[0] == "mails"
        to, _, attributes, body = reply
        assert (to, body) == (f"{jet.name}-replies", b'{"number":7,"total":40}')
        assert attributes["content-type"] == "application/json"
        assert attributes["correlation_id"]
        assert jet.replies.all == []  # FastStream has published nothing
        relay = AsyncRelay(postgres_url, {f"{jet.name}*": nats_server.url})
        assert await relay.drain() == 1
        await relay.aclose()
        assert await jet.replies.wait_for(1) == [('{"number":7,"total":40}', None)]
    assert rows.orders() == ["7"]
    assert len(attempts) == 2
    rows.close()


async def test_a_handler_may_complete_with_another_reply(jet, postgres_url):
    @jet.subscriber()
    @jet.publisher()
    async def bill(order: Order, delivery: CurrentDelivery) -> NatsResponse:
        await delivery.complete(NatsResponse("receipt of 7", headers={"mark": "a"}))
        return NatsResponse("not this")

    async with jet.running():
        await jet.place(b'{"order": 7}')
        await jet.acknowledged()
    ((_, _, attributes, body),) = kept(postgres_url)
    assert (body, attributes["mark"]) == (b"receipt of 7", "a")


async def test_each_publisher_of_a_handler_has_its_message(middleware, postgres_url):
    broker = KafkaBroker(middlewares=[middleware])

    @broker.subscriber("orders", group_id="billing", ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.publisher("receipts", key=b"shop-1")
    @broker.publisher("mails")
    async def bill(order: Order) -> str:
        return f"receipt of {order.order}"

    async with TestKafkaBroker(broker) as kafka:
        await kafka.publish({"order": 7}, "orders")
    found = kept(postgres_url)
    assert sorted((to, key, body) for to, key, _, body in found) == [
        ("mails", None, b"receipt of 7"),
        ("receipts", "shop-1", b"receipt of 7"),
    ]


async def test_what_cannot_keep_replies(inbox, outbox, middleware, postgres_url):
    with pytest.raises(ConfigurationError, match="give transaction="):
        InboxMiddleware(inbox, outbox=outbox)
    transaction = partial(transaction_to, postgres_url)
    with pytest.raises(ConfigurationError, match="AsyncOutbox"):
        InboxMiddleware(inbox, transaction=transaction, outbox="postgresql://")
    broker = RedisBroker()
    broker.subscriber(stream=StreamSub("orders", group="billing", consumer="one"))
    with pytest.raises(ConfigurationError, match="a format of its own"):
        middleware.check(broker)
