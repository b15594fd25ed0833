"""What a delayed copy of a message carries, and how long it waits, without a RabbitMQ."""

from datetime import UTC, datetime
from math import inf
from types import SimpleNamespace

import aio_pika
import pytest
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from oncekey import InProgressError, StoreError
from oncekey.messages import from_amqp, rabbitmq

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def delivered(**properties):
    frame = Basic.Deliver("tag", 1, False, "", "orders")
    header = ContentHeader(body_size=1, properties=Basic.Properties(**properties))
    raw = DeliveredMessage(delivery=frame, header=header, body=b"7", channel=None)
    return aio_pika.message.IncomingMessage(raw)


def test_a_copy_without_an_id_stays_without_one():
    """aiormq gives it one, and another key would make it another message."""
    copy = rabbitmq._copied(delivered(), "orders", 1)
    copy.message_id = "made up"
    again = delivered(message_id=copy.message_id, headers=copy.headers)
    assert from_amqp(again).id == ""
    assert from_amqp(delivered(message_id="m-1")).id == "m-1"


def test_what_its_deliveries_added_is_left_out():
    said = delivered(
        message_id="m-1",
        headers={"mark": "1", "x-delivery-count": 3, "x-death": [{"queue": "oncekey.delay.1"}]},
        expiration="1000",
        user_id="somebody",
        delivery_mode=1,
        timestamp=NOW,
    )
    copy = rabbitmq._copied(said, "orders", 4)
    assert (copy.expiration, copy.user_id, copy.delivery_mode) == (None, None, 2)
    assert (copy.message_id, copy.timestamp) == ("m-1", NOW)
    ours = {"oncekey-tries": 1, "oncekey-queue": "orders", "oncekey-delay": "4"}
    assert copy.headers == {"mark": "1", "oncekey-deliveries": 3} | ours


@pytest.mark.parametrize(
    ("before", "now", "limit", "version", "most"),
    [
        (3, None, 3, "3.10.8", None),  # the queue would go on
        (3, 1, 3, "3.10.8", 4),
        (4, None, 3, "3.10.8", 4),
        (None, 9, 3, "3.10.8", None),  # it was never delayed: the queue decides
        (99, None, None, "3.10.8", None),  # no limit
        (99, None, -1, "4.1.0", None),
        (20, 1, None, "4.1.0", 21),
    ],
)
def test_a_delayed_message_has_the_limit_of_its_queue(before, now, limit, version, most):
    counts = {"oncekey-deliveries": before, "x-delivery-count": now}
    headers = {name: one for name, one in counts.items() if one is not None}
    connection = SimpleNamespace(server_properties={"version": version})
    said = SimpleNamespace(headers=headers, channel=SimpleNamespace(connection=connection))
    arguments = {} if limit is None else {"x-delivery-limit": limit}
    assert rabbitmq.most_attempts(said, arguments) == most


QUORUM = {"x-queue-type": "quorum"}
IN_ORDER = {"x-single-active-consumer": True}


@pytest.mark.parametrize(
    ("name", "arguments", "version", "patience"),
    [
        ("orders", {"x-delivery-limit": 0}, "3.10.8", 0),
        ("orders", {"x-delivery-limit": 1}, "3.10.8", inf),  # it is delayed in another queue
        ("", {"x-delivery-limit": 1}, "3.10.8", 600),  # which is bound by its name
        ("orders", {"x-delivery-limit": 2, **IN_ORDER}, "3.10.8", 1200),
        ("orders", {**QUORUM, **IN_ORDER}, "4.1.0", 12_000),
        ("orders", {**QUORUM, **IN_ORDER}, "3.10.8", None),
        ("orders", {"x-delivery-limit": -1, **QUORUM}, "4.1.0", None),
        ("orders", IN_ORDER, "4.1.0", None),  # a classic queue counts nothing
    ],
)
def test_how_long_a_queue_keeps_a_message_whose_consumer_has_died(
    name, arguments, version, patience
):
    connection = SimpleNamespace(server_properties={"version": version})
    found = rabbitmq.limit_of(name, arguments, connection)
    assert (None if found is None else found.patience) == patience


@pytest.mark.parametrize(
    ("tries", "left", "seconds"),
    [(0, 300, 1), (3, 300, 8), (6, 300, 64), (60, 300, 64), (6, 3.2, 4), (6, 4, 4), (6, 0.1, 1)],
)
def test_a_message_waits_twice_as_long_each_time_but_hardly_longer_than_the_lease(
    tries, left, seconds
):
    message = delivered(headers={rabbitmq.TRIES: tries})
    assert rabbitmq._bucket(message, InProgressError("elsewhere", lease_left=left)) == seconds
    down = rabbitmq._bucket(message, StoreError("down", happened=False))
    assert down == min(64, 2**tries)
