"""A dead letter that is sent to a queue again."""

import aio_pika
import pytest

from oncekey.messages import from_amqp
from oncekey.messages.dead_letters import publish
from oncekey.messages.message import Letter
from oncekey.outbox.targets import MessageRefusedError

ATTRIBUTES = {"mark": "1", "x-delivery-count": 3}


async def test_a_letter_comes_as_it_was(rabbit_server):
    letter = Letter(id="m-1", type="order.placed", attributes=ATTRIBUTES, body=b"7")
    async with await aio_pika.connect(rabbit_server.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("resent", durable=True)
        await publish(letter, rabbit_server.url, queue.name)
        delivered = await queue.get()
        await delivered.ack()
    message = from_amqp(delivered)
    assert (message.id, message.type, message.body) == ("m-1", "order.placed", b"7")
    assert message.attributes == {"mark": "1"}


async def test_a_letter_to_a_queue_that_is_not_there_is_refused(rabbit_server):
    letter = Letter(id="m-1", type="", attributes={}, body=b"7")
    with pytest.raises(MessageRefusedError):
        await publish(letter, rabbit_server.url, "nowhere")
