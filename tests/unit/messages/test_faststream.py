"""What FastStream's messages, subscribers and replies are to the inbox, without any broker."""

import logging
from functools import partial
from types import SimpleNamespace

import pytest
from faststream import AckPolicy, Response, confluent, kafka
from faststream.exceptions import StopConsume
from faststream.message import StreamMessage
from faststream.nats import NatsBroker, NatsResponse, NatsRouter, TestNatsBroker
from faststream.rabbit import (
    QueueType,
    RabbitBroker,
    RabbitExchange,
    RabbitQueue,
    RabbitResponse,
)
from faststream.redis import RedisBroker, RedisResponse
from nats.js.api import AckPolicy as JetStreamAckPolicy
from nats.js.api import ConsumerConfig

from oncekey import ConfigurationError, InProgressError, Once
from oncekey.core.codec import NotKeepableError, UnreadableBytesError
from oncekey.messages import AsyncInbox, Inbox, faststream
from oncekey.messages.faststream import (
    ACKED,
    HandlerReplyCodec,
    InboxMiddleware,
    checked,
    message_from,
    messages_from,
    once_message,
    put_back,
)


def of_module(module, **facts):
    return type("Theirs", (), {"__module__": module, **facts})()


def told(raw, **facts):
    return StreamMessage(raw, b'{"order": 7}', **facts)


@pytest.fixture
def inbox():
    return AsyncInbox(Once("memory://"), "billing")


# Identity


def test_the_ids_that_faststream_makes_up_are_not_looked_at():
    raw = of_module(
        "aio_pika.message", message_id=None, type=None, routing_key="orders", headers={}, body=b""
    )
    found = message_from(told(raw, message_id="made-up", headers={"tenant": "a"}))
    assert (found.id, found.attributes, found.find("order")) == ("", {"tenant": "a"}, 7)


def test_kafka_goes_by_topic_partition_and_offset():
    raw = of_module(
        "aiokafka.structs", topic="orders", partition=3, offset=9, headers=(), value=b"7"
    )
    assert message_from(told(raw, message_id="9-1700000000")).id == "orders:3:9"


def test_an_entry_of_a_redis_stream_goes_by_stream_and_id():
    raw = {"type": "stream", "channel": "orders", "message_ids": [b"1-0"], "data": {}}
    found = message_from(told(raw))
    assert (found.id, found.type, found.deliveries) == ("orders:1-0", "orders", None)
    assert message_from(told({**raw, "delivery_counts": [2]})).deliveries == 3


@pytest.mark.parametrize(
    "raw", [{"type": "list", "channel": "orders", "data": b"7"}, SimpleNamespace(topic="orders")]
)
def test_what_has_no_identity_says_what_it_lacks(raw):
    found = message_from(told(raw))
    assert found.id == ""
    assert "Nats-Msg-Id" in found.lacks


@pytest.mark.parametrize("raw", [[1, 2], (1, 2)])
def test_a_batch_is_refused_where_one_message_is_expected(raw):
    with pytest.raises(ConfigurationError, match="an argument named deliveries"):
        message_from(told(raw))
    with pytest.raises(ConfigurationError, match="an argument named deliveries"):
        message_from(told({"type": "bstream"}, batch_headers=[{}, {}]))


def test_a_handler_of_batches_needs_a_transaction(inbox):
    with pytest.raises(ConfigurationError, match="a batch needs once_message"):

        @once_message(inbox)
        async def bill(orders: list[int], deliveries) -> None: ...


def test_the_messages_of_a_batch_are_told_apart():
    ids, data = [b"1-0", b"2-0"], [{b"a": b"1"}, {b"oncekey-first-id": b"orders:0-1"}]
    raw = {"type": "bstream", "channel": "orders", "message_ids": ids, "data": data}
    batch = StreamMessage(raw, b'[{"order": 7}, {"order": 8}]', batch_headers=[{"a": "1"}, {}])
    found = messages_from(batch)
    assert [(one.id, one.attributes) for one in found] == [
        ("orders:1-0", {"a": "1"}),
        ("orders:0-1", {}),  # a dead letter that was sent again
    ]
    assert [one.find("order") for one in found] == [7, 8]
    records = [
        of_module(
            "aiokafka.structs", topic="orders", partition=3, offset=number, headers=(), value=b"7"
        )
        for number in (9, 10)
    ]
    assert [one.id for one in messages_from(told(records))] == ["orders:3:9", "orders:3:10"]


# Putting back


@pytest.mark.parametrize(
    ("module", "rest", "options"),
    [
        ("faststream.nats.message", [], {"delay": 3.0}),
        ("faststream.redis.message", [], {}),
        ("faststream.rabbit.message", [20.0], {}),
        ("faststream.kafka.message", [3.0], {}),
    ],
)
async def test_brokers_that_cannot_wait_are_waited_for(module, rest, options, monkeypatch):
    """RabbitMQ has a delay queue, but not for a queue whose name is not known."""
    found = []

    async def pause(seconds):
        found.append(seconds)

    monkeypatch.setattr(faststream, "pause_async", pause)
    busy = InProgressError("elsewhere", retry_after=3.0, lease_left=20.0)
    nack = await put_back(of_module(module, raw_message=None), None, busy)
    assert (found, nack.extra_options) == (rest, options)


# Subscribers


@pytest.mark.parametrize("policy", [AckPolicy.ACK_FIRST, AckPolicy.MANUAL])
def test_who_is_not_acknowledged_after_the_reply_is_refused(policy):
    kafka = of_module("faststream.kafka.subscriber.usecase", ack_policy=policy)
    with pytest.raises(ConfigurationError, match=f"AckPolicy.{policy.name}") as refused:
        checked(kafka)
    assert isinstance(refused.value, StopConsume)


@pytest.mark.filterwarnings("ignore:AckPolicy.REJECT_ON_ERROR has the same effect")
@pytest.mark.parametrize("policy", [AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR])
@pytest.mark.parametrize("kind", [kafka.KafkaBroker, confluent.KafkaBroker])
def test_kafka_commits_what_has_failed(kind, policy, inbox):
    """The same policies are harmless with other brokers, where nothing is committed."""
    broker = kind()
    broker.subscriber("orders", group_id="billing", ack_policy=policy)(print)
    with pytest.raises(ConfigurationError, match=f"with AckPolicy.{policy.name} Kafka commits"):
        InboxMiddleware(inbox).check(broker)
    good = kind()
    good.subscriber("orders", group_id="billing", ack_policy=AckPolicy.NACK_ON_ERROR)(print)
    InboxMiddleware(inbox).check(good)
    nats = NatsBroker()
    nats.subscriber("orders", stream="ORDERS", ack_policy=policy)(print)
    InboxMiddleware(inbox).check(nats)


@pytest.mark.parametrize("policy", ["none", "all"])
def test_a_consumer_that_acknowledges_what_is_put_back_is_refused(inbox, policy):
    broker = NatsBroker()
    config = ConsumerConfig(ack_policy=JetStreamAckPolicy(policy))
    broker.subscriber("orders", stream="ORDERS", config=config)(print)
    with pytest.raises(ConfigurationError, match=f"'explicit', and not '{policy}'"):
        InboxMiddleware(inbox).check(broker)


def test_a_broker_is_looked_through_before_it_starts(inbox):
    middleware = InboxMiddleware(inbox)
    good = NatsBroker(middlewares=[middleware])
    good.subscriber("orders", stream="ORDERS", ack_policy=AckPolicy.NACK_ON_ERROR)(print)
    middleware.check(good)
    core = NatsBroker()
    router = NatsRouter()
    router.subscriber("orders")(print)
    core.include_router(router)
    with pytest.raises(ConfigurationError, match="JetStream"):
        middleware.check(core)
    popped = RedisBroker()
    popped.subscriber(list="orders")(print)
    with pytest.raises(ConfigurationError, match="MANUAL"):
        middleware.check(popped)


def rabbit_limit(limit, **more):
    broker = RabbitBroker()
    arguments = {"x-delivery-limit": limit, **more}
    queue = RabbitQueue("orders", queue_type=QueueType.QUORUM, durable=True, arguments=arguments)
    broker.subscriber(queue, ack_policy=AckPolicy.NACK_ON_ERROR)(print)
    return broker


def nats_limit(limit):
    broker = NatsBroker()
    config = ConsumerConfig(max_deliver=limit)
    policy = AckPolicy.NACK_ON_ERROR
    broker.subscriber("orders", stream="ORDERS", config=config, ack_policy=policy)(print)
    return broker


@pytest.mark.parametrize(
    ("broker", "lease", "told"),
    [
        (partial(rabbit_limit, 0), "30s", "0 s later"),
        (partial(rabbit_limit, 1), "1h", ""),  # it is delayed elsewhere
        (partial(rabbit_limit, 1, **{"x-single-active-consumer": True}), "1h", "600 s later"),
        (partial(rabbit_limit, 20, **{"x-single-active-consumer": True}), "1h", ""),
        (partial(nats_limit, 1), "30s", "0 s later"),
        (partial(nats_limit, 2), "30s", ""),
        (partial(nats_limit, -1), "1h", ""),
    ],
)
def test_a_limit_that_ends_before_the_lease_is_told_at_the_start(broker, lease, told, caplog):
    made = broker()
    guard = InboxMiddleware(AsyncInbox("memory://", "billing", lease=lease))
    for _ in range(2):
        guard.check(made)
    found = [one for one in caplog.messages if "before its lease" in one]
    assert len(found) == bool(told)
    assert all(told in one for one in found)


async def test_an_unfit_subscriber_is_stopped_and_said_so(inbox, caplog):
    broker = NatsBroker(middlewares=[InboxMiddleware(inbox)])
    ran = []

    @broker.subscriber("orders")
    async def bill(number: int) -> None:
        ran.append(number)

    async with TestNatsBroker(broker) as running:
        with pytest.raises(ConfigurationError, match="JetStream"):
            await running.publish(7, "orders")
    assert ran == []
    assert "a subscriber was stopped: an inbox needs a stream" in caplog.text


# Arguments


@pytest.mark.parametrize("door", [InboxMiddleware, once_message])
def test_mistakes_show_at_once(door, inbox):
    with pytest.raises(ConfigurationError, match="AsyncInbox"):
        door(Inbox("memory://", "billing"))
    with pytest.raises(ConfigurationError, match="transaction must be a function"):
        door(inbox, transaction="postgresql://")
    with pytest.raises(ConfigurationError, match="needs the table processed_messages"):
        door(inbox, transaction=print)
    with pytest.raises(ConfigurationError, match="wait"):
        door(inbox, wait="soon")


def test_only_functions_are_handlers(inbox):
    with pytest.raises(ConfigurationError, match="is a class"):
        once_message(inbox)(dict)


async def test_a_handler_may_be_called_by_itself(inbox, caplog):
    @once_message(inbox)
    def bill(number: int, delivery: object = None) -> str:
        return f"{number} {delivery}"

    with caplog.at_level(logging.WARNING):
        assert [await bill(7), await bill(7)] == ["7 None", "7 None"]
    assert caplog.text.count("runs unprotected: it was not called by FastStream") == 1


# Replies


@pytest.mark.parametrize(
    "response",
    [
        Response([1], headers={"a": "b"}, correlation_id="c"),
        NatsResponse({"a": 1}, stream="REPLIES"),
        RabbitResponse(b"x", content_type="image/png", headers={}),
        RedisResponse("text", maxlen=9),
    ],
)
def test_a_response_comes_back_as_it_was(response):
    codec = HandlerReplyCodec(int)  # whatever the handler is annotated with
    back = codec.decode(codec.encode(response))
    assert type(back) is type(response)
    assert vars(back) == vars(response)


def test_values_are_kept_as_ever():
    codec = HandlerReplyCodec(dict[str, int])
    assert codec.decode(codec.encode({"a": 1})) == {"a": 1}
    words = HandlerReplyCodec()
    assert words.decode(words.encode("oncekey.faststream")) == "oncekey.faststream"
    assert words.decode(words.encode(ACKED)) is ACKED


class FussyResponse(Response):
    def __init__(self, body, more):
        super().__init__(body)
        self.more = more


@pytest.mark.parametrize(
    "response", [Response(object()), RabbitResponse(1, exchange=RabbitExchange("x")), "fussy"]
)
def test_what_a_response_holds_may_not_be_keepable(response):
    with pytest.raises(NotKeepableError):
        HandlerReplyCodec().encode(FussyResponse(1, 2) if response == "fussy" else response)


def test_a_response_of_a_broker_that_is_gone_is_unreadable():
    codec = HandlerReplyCodec()
    data = codec.encode(Response(1))
    renamed = data.replace(b"faststream.response", b"faststream.removed1")
    with pytest.raises(UnreadableBytesError, match="removed"):
        codec.decode(renamed)
