"""Messages: an inbox that processes a redelivered message only once.

In atomic mode the claim, your writes and the completion are one transaction of your database. In
leased mode the claim is committed first, and the completion joins your transaction.
"""

from oncekey.messages.acknowledge import acknowledged, acknowledged_entry
from oncekey.messages.delivery import AsyncDelivery, Claim, Delivery
from oncekey.messages.inbox import Inbox
from oncekey.messages.inbox_async import AsyncInbox
from oncekey.messages.keys import by_attribute, by_fields, by_message_id
from oncekey.messages.message import (
    Message,
    from_amqp,
    from_confluent,
    from_jetstream,
    from_kafka,
    from_redis_stream,
    from_sqs,
)
from oncekey.messages.rules import DeadLetter

__all__ = [
    "AsyncDelivery",
    "AsyncInbox",
    "Claim",
    "DeadLetter",
    "Delivery",
    "Inbox",
    "Message",
    "acknowledged",
    "acknowledged_entry",
    "by_attribute",
    "by_fields",
    "by_message_id",
    "from_amqp",
    "from_confluent",
    "from_jetstream",
    "from_kafka",
    "from_redis_stream",
    "from_sqs",
]
