"""Which part of each broker's message is its identity."""

from types import SimpleNamespace

import pytest

from oncekey import ConfigurationError, InvalidKeyError
from oncekey.messages import Message, by_message_id, from_redis_stream
from oncekey.messages.keys import key_of
from oncekey.messages.message import message_of


def of_module(module, **facts):
    """A message whose class comes from the module of a client."""
    return type("Theirs", (), {"__module__": module, **facts})()


def amqp(**facts):
    usual = {
        "message_id": "m-1",
        "type": None,
        "routing_key": "orders",
        "headers": {},
        "body": b"{}",
        "delivery_tag": 7,
    }
    return of_module("aio_pika.message", **(usual | facts))


def nats(**facts):
    return of_module(
        "nats.aio.msg", **({"headers": None, "subject": "orders", "data": b""} | facts)
    )


def facts_of(message):
    return message.id, message.type, message.deliveries


def test_amqp_has_the_property_of_the_producer():
    assert facts_of(message_of(amqp())) == ("m-1", "orders", None)
    counted = amqp(type="order.placed", headers={"x-delivery-count": 2})
    assert facts_of(message_of(counted)) == ("m-1", "order.placed", 3)


def test_amqp_without_it_is_refused_and_told_which_property():
    with pytest.raises(InvalidKeyError, match="AMQP property message_id"):
        key_of(message_of(amqp(message_id=None)), by_message_id, "error")


def test_jetstream_has_a_header_or_the_place_in_the_stream():
    place = SimpleNamespace(
        stream="ORDERS", sequence=SimpleNamespace(stream=41, consumer=7), num_delivered=2
    )
    assert facts_of(message_of(nats(metadata=place))) == ("ORDERS:41", "orders", 2)
    named = nats(metadata=place, headers={"Nats-Msg-Id": "m-1"})
    assert facts_of(message_of(named)) == ("m-1", "orders", 2)


def test_core_nats_has_nothing_but_a_header():
    def metadata(_):
        raise ValueError("not a JetStream message")

    bare = nats(metadata=property(metadata))
    with pytest.raises(InvalidKeyError, match="Nats-Msg-Id"):
        key_of(message_of(bare), by_message_id, "error")
    named = nats(metadata=property(metadata), headers={"Nats-Msg-Id": "m-1"})
    assert message_of(named).id == "m-1"


def test_kafka_has_topic_partition_and_offset():
    record = of_module(
        "aiokafka.structs",
        topic="orders",
        partition=3,
        offset=9,
        headers=(("request_id", b"r-1"), ("empty", None)),
        value=b"{}",
    )
    found = message_of(record)
    assert facts_of(found) == ("orders:3:9", "orders", None)
    assert found.attributes == {"request_id": "r-1", "empty": ""}


@pytest.mark.parametrize("module", ["cimpl", "confluent_kafka.cimpl"])
def test_confluents_records_are_the_same_with_brackets(module):
    record = of_module(
        module,
        topic=lambda _: "orders",
        partition=lambda _: 3,
        offset=lambda _: 9,
        headers=lambda _: None,
        value=lambda _: b"{}",
    )
    assert facts_of(message_of(record)) == ("orders:3:9", "orders", None)


def test_a_redis_stream_has_its_name_and_the_id_of_the_entry():
    entry = (b"1700000000000-0", {b"type": b"order.placed", b"order": b"7"})
    found = from_redis_stream(b"orders", entry, deliveries=2)
    assert facts_of(found) == ("orders:1700000000000-0", "order.placed", 2)
    assert found.find("order") == "7"
    assert from_redis_stream("orders", ("1-0", {})).type == "orders"


def test_sqs_has_the_id_of_a_fifo_queue_or_its_own():
    plain = {
        "MessageId": "m-1",
        "ReceiptHandle": "another each time",
        "Body": "{}",
        "Attributes": {"ApproximateReceiveCount": "3"},
        "MessageAttributes": {"type": {"StringValue": "order.placed", "DataType": "String"}},
    }
    assert facts_of(message_of(plain)) == ("m-1", "order.placed", 3)
    fifo = {"ReceiptHandle": "x", "Attributes": {"MessageDeduplicationId": "d-1"}}
    assert facts_of(message_of(fifo)) == ("d-1", "", None)
    with pytest.raises(InvalidKeyError, match="MessageId"):
        key_of(message_of({"ReceiptHandle": "x"}), by_message_id, "error")


def test_ours_is_itself_and_anything_else_is_refused():
    ours = Message(id="m-1")
    assert message_of(ours) is ours
    for strange in ({"id": "m-1"}, "m-1", b"{}", object()):
        with pytest.raises(ConfigurationError, match="Message\\(id="):
            message_of(strange)
