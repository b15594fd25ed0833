"""A message of FastStream: what of it is its identity, and what its broker can be told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from faststream.exceptions import NackMessage, StopConsume
from faststream.middlewares import AckPolicy
from msgspec.structs import replace

from oncekey.errors import ConfigurationError
from oncekey.messages.identity import from_redis_stream, message_of
from oncekey.messages.message import Message

if TYPE_CHECKING:
    from faststream.message import StreamMessage

_ACK_WAIT: Final = 30.0
"""What JetStream waits for an acknowledgement, unless its consumer says otherwise."""

_LACKS: Final = (
    "an id of its broker; with FastStream that is the AMQP property message_id, the header "
    "Nats-Msg-Id or a stream of NATS, an entry of a Redis stream, or a record of Kafka"
)


class UnfitError(ConfigurationError, StopConsume):
    """The subscriber cannot be protected. FastStream stops it: it would go on losing messages."""

    def __str__(self) -> str:
        """Why; FastStream would only say that it was stopped."""
        return ConfigurationError.__str__(self)


def checked(subscriber: Any) -> None:  # noqa: ANN401 - of any broker
    """Refused where FastStream does not acknowledge after the reply, or cannot ask again."""
    policy = getattr(subscriber, "ack_policy", None)
    if policy in (AckPolicy.ACK_FIRST, AckPolicy.MANUAL):
        name = AckPolicy(policy).name
        msg = (
            f"an inbox needs messages that are acknowledged after their reply, but this subscriber "
            f"has AckPolicy.{name} (with Kafka the default is ACK_FIRST, and lists and channels of "
            f"Redis have MANUAL): set ack_policy=AckPolicy.NACK_ON_ERROR where the broker delivers "
            f"again, and give the others a router without InboxMiddleware"
        )
        raise UnfitError(msg)
    of_nats = type(subscriber).__module__.startswith("faststream.nats.")
    if of_nats and getattr(subscriber, "stream", None) is None:
        msg = (
            "an inbox needs a stream of JetStream, as in subscriber(..., stream='ORDERS'): core "
            "NATS delivers nothing again, so that a message in progress elsewhere would be lost"
        )
        raise UnfitError(msg)


def message_from(told: StreamMessage[Any]) -> Message:
    """The message as the inbox sees it. The ids that FastStream makes up are not looked at."""
    raw = told.raw_message
    if isinstance(raw, (list, tuple)) or told.batch_headers:
        msg = (
            "a batch has one result for many messages, which an inbox cannot tell apart; subscribe "
            "to single messages (batch=False), or use inbox.leased() for each of them yourself"
        )
        raise UnfitError(msg)
    if isinstance(raw, Mapping):
        found = _of_redis(raw)
    else:
        try:
            found = message_of(raw)
        except ConfigurationError:  # of a broker that is not known here: a key may still be made
            found = Message(lacks=_LACKS)
    attributes = {**found.attributes, **told.headers}
    return replace(found, attributes=attributes, body=told.body, native=told)


def _of_redis(raw: Mapping[str, Any]) -> Message:
    ids = raw.get("message_ids") or ()
    if raw.get("type") != "stream" or not ids:
        return Message(type=str(raw.get("channel") or ""), lacks=_LACKS)
    before = raw.get("delivery_counts")
    found = from_redis_stream(raw["channel"], (ids[0], {}), before[0] + 1 if before else None)
    return replace(found, attributes={})


def put_back(told: StreamMessage[Any], seconds: float) -> tuple[float, NackMessage]:
    """How long to wait first, and what has FastStream ask for the message again.

    JetStream waits itself. What is left pending in a Redis stream comes again when it was idle for
    long enough. The others would deliver it at once.
    """
    module = type(told).__module__
    if module.startswith("faststream.nats"):
        return 0.0, NackMessage(delay=seconds)
    return (0.0 if module.startswith("faststream.redis") else seconds), NackMessage()


@asynccontextmanager
async def alive(told: StreamMessage[Any], subscriber: Any) -> AsyncIterator[None]:  # noqa: ANN401 - of any broker
    """Inside the block JetStream hears that the message is in progress, and does not repeat it."""
    tell = getattr(told, "in_progress", None)
    if tell is None:
        yield
        return
    beating = asyncio.create_task(_beat(tell, _patience(subscriber) / 3))
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.wait([beating])


async def _beat(tell: Any, every: float) -> None:  # noqa: ANN401 - a method of the message
    while True:
        await asyncio.sleep(every)
        with suppress(Exception):  # who cannot be told delivers again, which is harmless
            await tell()


def _patience(subscriber: Any) -> float:  # noqa: ANN401 - of NATS
    """How many seconds the broker waits for an acknowledgement."""
    config = getattr(subscriber, "config", None)
    said = getattr(config, "backoff", None) or [getattr(config, "ack_wait", None) or _ACK_WAIT]
    return float(min(said))
