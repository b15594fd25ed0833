"""An outbox whose relays send to Kafka, on librdkafka's mock cluster."""

from time import monotonic

import pytest
from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]  # it has no types
from confluent_kafka import Consumer

from oncekey.messages import AsyncInbox
from oncekey.messages.kafka import records
from oncekey.outbox import OutboxMessage
from oncekey.outbox.targets import Kafka, MessageRefusedError
from tests.patience import PATIENCE
from tests.system.kafka.conftest import MockCluster

QUIET = {"log_level": 0}


def message(to, name="m-1", key=None, body=b"7", **attributes):
    return OutboxMessage(id=name, to=to, key=key, type="paid", attributes=attributes, body=body)


async def published(target, *messages, patience=60.0):
    """What became of the messages."""
    return [*await target.publish(messages, monotonic() + patience)]


@pytest.fixture
async def target(kafka):
    target = Kafka(kafka.servers, QUIET)
    yield target
    await target.aclose()


def read(kafka, topic, count):
    """The next records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": f"reading {topic}",
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.subscribe([topic])
    try:
        return consumer.consume(count, PATIENCE)
    finally:
        consumer.close()


async def test_a_topic_has_it_with_its_key_and_its_id(kafka, target):
    topic = kafka.new_topic()
    sent = [message(topic, f"m-{n}", key=f"order {n % 3}", body=b"%d" % n, n=n) for n in range(9)]
    assert await published(target, *sent) == [None] * 9
    found = read(kafka, topic, 9)
    assert len(found) == 9
    by_key = {}
    for one in found:
        headers = dict(one.headers())
        by_key.setdefault(one.key().decode(), []).append((one.partition(), one.value()))
        assert headers == {
            "n": one.value(),
            "type": b"paid",
            "oncekey-id": b"m-" + one.value(),
        }
    assert {key: [value for _, value in some] for key, some in by_key.items()} == {
        f"order {n}": [b"%d" % n, b"%d" % (n + 3), b"%d" % (n + 6)] for n in range(3)
    }
    assert all(len({partition for partition, _ in some}) == 1 for some in by_key.values())


@pytest.mark.parametrize("client", ["aiokafka", "confluent"])
async def test_an_inbox_knows_what_was_sent_twice(kafka, target, client):
    topic = kafka.new_topic()
    for one in (
        message(topic, key="7", tenant="a"),
        message(topic, key="7"),
        message(topic, "end", "7"),
    ):
        assert await published(target, one) == [None]
    common = {"group_id": f"billing {topic}", "auto_offset_reset": "earliest"}
    if client == "aiokafka":
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=kafka.servers, enable_auto_commit=False, **common
        )
        await consumer.start()
    else:
        said = {name.replace("_", "."): value for name, value in common.items()}
        consumer = Consumer(
            {"bootstrap.servers": kafka.servers, "enable.auto.commit": False, **said, **QUIET}
        )
        consumer.subscribe([topic])
    inbox, seen = AsyncInbox("memory://", "billing"), []
    async for taken in records(consumer):
        async with taken as found, inbox.leased(found) as delivery:
            seen.append((found.id, found.type, found.attributes.get("tenant"), delivery.duplicate))
            if not delivery.duplicate:
                await delivery.complete()
        if len(seen) == 3:
            break
    if client == "aiokafka":
        await consumer.stop()
    else:
        consumer.close()
    await inbox.aclose()
    assert seen == [
        ("m-1", "paid", "a", False),
        ("m-1", "paid", None, True),
        ("end", "paid", None, False),
    ]


async def test_what_is_too_large_is_refused_and_the_others_are_sent(kafka, target):
    topic = kafka.new_topic()
    large = message(topic, "large", body=b"x" * 1_100_000)
    found = await published(target, message(topic), large, message(topic, "m-2"))
    assert [type(one) for one in found] == [type(None), MessageRefusedError, type(None)]


async def test_brokers_out_of_reach_do_not_count(kafka):
    gone = MockCluster()
    topic = gone.new_topic()
    target = Kafka(gone.servers, QUIET)
    assert await published(target, message(topic)) == [None]
    del gone
    found = await published(target, message(topic, "m-2"), message(topic, "m-3"), patience=3.0)
    assert [type(one) for one in found] == [ConnectionError] * 2
    await target.aclose()
