"""The message that the inbox works with, and readers for the messages of brokers."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.messages.limit import DeliveryLimit

_log = logging.getLogger("oncekey")


class Message(Struct, kw_only=True):
    """One delivery of a message.

    `id` is the same in every delivery, and empty if the producer has set none. `body` is the bytes,
    or what they were decoded to. `deliveries` counts the broker's deliveries, this one included, if
    the broker counts them.
    """

    id: str = ""
    type: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    body: Any = b""
    deliveries: int | None = None
    lacks: str = "its id"
    """What the broker's message lacks when there is no id, and how to set it."""
    native: Any = None
    wait: float = 0.0
    """How many seconds `leased` waits in place while the message is in progress elsewhere."""
    max_attempts: int | None = None
    """How often `leased` begins with the message, for an inbox that has no `max_attempts`."""
    limit: DeliveryLimit | None = None
    """How often the broker delivers it again, so that `leased` can tell if that is too seldom."""
    entry: Mapping[Any, Any] | None = None
    """The fields of an entry of a Redis stream, so that it can be sent again as it was."""

    def find(self, path: str) -> Any:
        """Return the value at a dotted path in the body, which may be JSON.

        Raise KeyError if there is none, and InvalidKeyError if the body is bytes but no JSON.
        """
        value = self._decoded()
        for part in path.split("."):
            if isinstance(value, Mapping):
                value = value[part]
            else:
                try:
                    value = getattr(value, part)
                except AttributeError:
                    raise KeyError(part) from None
        return value

    def _decoded(self) -> Any:
        if not isinstance(self.body, (bytes, bytearray, memoryview, str)):
            return self.body
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            msg = (
                "the body of the message is no JSON; decode it, or make the key from something else"
            )
            raise InvalidKeyError(msg) from None


class Letter(Struct, frozen=True, kw_only=True):
    """What a dead message was, as it is kept in the place of its result."""

    id: str
    type: str
    attributes: dict[str, Any]
    body: bytes
    entry: list[tuple[bytes, bytes]] | None = None
    """The fields of an entry of a Redis stream."""


def letter_of(message: Message, most: int) -> bytes | None:
    """Return the message as bytes, so that it can be published again, or None if it is too large.

    There is none of a message whose body is not known, or that cannot be written as JSON.
    """
    if message.body == b"":
        return None
    try:
        data = _written(message)
    except Exception as error:  # noqa: BLE001 - whatever is in it, the message must be able to die
        _log.warning("the dead message %r is kept without its body: %r", message.id, error)
        return None
    return data if len(data) <= most else None


def _written(message: Message) -> bytes:
    body = message.body
    if isinstance(body, (bytearray, memoryview)):
        body = bytes(body)
    elif isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    elif not isinstance(body, bytes):
        try:
            body = msgspec.json.encode(body, enc_hook=str)
        except UnicodeEncodeError:  # half a character, which JSON can escape
            body = json.dumps(body, default=str).encode()
    attributes = {str(name): value for name, value in message.attributes.items()}
    entry = None
    if message.entry is not None:
        entry = [(_in_bytes(name), _in_bytes(value)) for name, value in message.entry.items()]
    letter = Letter(id=message.id, type=message.type, attributes=attributes, body=body, entry=entry)
    return msgspec.json.encode(letter, enc_hook=str)


# The part of a broker's message that is its identity: the same in every delivery, and unique.
#
# Not an identity: a delivery tag, a receipt handle, a consumer's sequence, an offset without its
# partition, and any id that a framework makes up when the producer has set none.


_KAFKA_VALUE: Final = "topic, partition and offset"
AMQP_WITHOUT_ID: Final = "oncekey-without-id"
"""The header of a copy whose original has no id, since aio-pika gives every copy one."""


def from_amqp(message: Any) -> Message:
    """Read a message of RabbitMQ (aio-pika).

    Its id is the property `message_id`, which the producer sets.
    """
    headers = dict(message.headers or {})
    count = headers.get("x-delivery-count")
    return Message(
        id="" if AMQP_WITHOUT_ID in headers else message.message_id or "",
        type=message.type or message.routing_key or "",
        attributes=headers,
        body=message.body,
        deliveries=count + 1 if isinstance(count, int) else None,
        lacks="the AMQP property message_id (a delivery tag is another one each time)",
        native=message,
    )


def from_jetstream(message: Any) -> Message:
    """Read a message of NATS JetStream (nats-py).

    Its id is the header `Nats-Msg-Id`, or else the stream and the sequence.
    """
    headers = dict(message.headers or {})
    said = headers.get("Nats-Msg-Id") or ""
    lacks = "the header Nats-Msg-Id, and came through core NATS, which numbers nothing"
    try:
        facts = message.metadata
    except Exception:  # noqa: BLE001 - nats-py: not a JetStream message, an error of its own
        return Message(
            id=said,
            type=message.subject,
            attributes=headers,
            body=message.data,
            lacks=lacks,
            native=message,
        )
    return Message(
        id=said or f"{facts.stream}:{facts.sequence.stream}",
        type=message.subject,
        attributes=headers,
        body=message.data,
        deliveries=facts.num_delivered,
        native=message,
    )


OUTBOX_ID: Final = "oncekey-id"
"""The header of a record, or the field of an entry, with the id that an outbox has given it."""


def from_kafka(record: Any) -> Message:
    """Read a record of Kafka (aiokafka). Its id is topic, partition and offset.

    They do not survive a retry topic or a replay: prefer `by_attribute` with a header of the
    producer. A record of an outbox has its id in the header `oncekey-id`.
    """
    place = f"{record.topic}:{record.partition}:{record.offset}"
    return _of_record(record, record.topic, place, record.headers, record.value)


def from_confluent(record: Any) -> Message:
    """Read a record of Kafka (confluent-kafka), as `from_kafka` does."""
    topic = record.topic() or ""
    place = f"{topic}:{record.partition()}:{record.offset()}"
    return _of_record(record, topic, place, record.headers() or (), record.value())


def _of_record(
    record: Any, topic: str, place: str, headers: Iterable[tuple[str, bytes | None]], value: Any
) -> Message:
    attributes = _headers(headers)
    said = attributes.pop(OUTBOX_ID, "")
    return Message(
        id=said or place,
        type=(said and attributes.get("type")) or topic,
        attributes=attributes,
        body=value,
        lacks=_KAFKA_VALUE,
        native=record,
    )


REDIS_BODY: Final = "data"
FIRST_ID: Final = "oncekey-first-id"
"""The field of an entry that was sent again as it was, with the id of the first one."""


def from_redis_stream(
    stream: str | bytes, entry: tuple[Any, Mapping[Any, Any]], deliveries: int | None = None
) -> Message:
    """Read an entry of a Redis stream. Its id is the stream's name and the entry's id.

    An entry that was sent again as it was, as a dead letter is, has its first id in the field
    `oncekey-first-id`. That of an outbox has its id in `oncekey-id`, and its body in `data`.
    `deliveries` is the count that XPENDING gives, if you ask for it.
    """
    number, fields = entry
    found = {_word(name): value for name, value in fields.items()}
    said, first = found.pop(OUTBOX_ID, None), found.pop(FIRST_ID, None)
    attributes = {name: _word(value) for name, value in found.items()}
    body: Any = attributes
    if said is not None:
        attributes.pop(REDIS_BODY, None)
        body = found.get(REDIS_BODY, b"")
    return Message(
        id=_word(said or first or b"") or f"{_word(stream)}:{_word(number)}",
        type=attributes.get("type") or _word(stream),
        attributes=attributes,
        body=body,
        deliveries=deliveries,
        native=entry,
        entry=fields,
    )


def from_sqs(message: Mapping[str, Any]) -> Message:
    """Read a message of SQS (boto3).

    Its id is the `MessageDeduplicationId` of a FIFO queue, or else the `MessageId`.
    """
    facts = message.get("Attributes") or {}
    said = message.get("MessageAttributes") or {}
    count = facts.get("ApproximateReceiveCount")
    attributes = {name: value.get("StringValue") for name, value in said.items()}
    return Message(
        id=facts.get("MessageDeduplicationId") or message.get("MessageId") or "",
        type=attributes.get("type") or "",
        attributes=attributes,
        body=message.get("Body", ""),
        deliveries=None if count is None else int(count),
        lacks="MessageId (a receipt handle is another one each time)",
        native=message,
    )


# The module of the message's type, and the function that reads it.
_KNOWN: Final[tuple[tuple[str, Callable[[Any], Message]], ...]] = (
    ("aio_pika.", from_amqp),
    ("nats.", from_jetstream),
    ("aiokafka.", from_kafka),
    ("cimpl", from_confluent),
    ("confluent_kafka", from_confluent),
)


def message_of(given: Any) -> Message:
    """Return the given `Message`, or read one of a known client.

    Raise ConfigurationError for any other type.
    """
    if isinstance(given, Message):
        return given
    for kind in type(given).__mro__:
        for module, read in _KNOWN:
            if kind.__module__.startswith(module):
                return read(given)
    if isinstance(given, Mapping) and "ReceiptHandle" in given:
        return from_sqs(given)
    msg = (
        f"the inbox does not know the identity of a {type(given).__name__}; pass "
        f"Message(id=..., type=..., body=...), with an id that is the same in every delivery"
    )
    raise ConfigurationError(msg)


def _headers(pairs: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
    return {name: "" if value is None else _word(value) for name, value in pairs}


def _in_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _word(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
