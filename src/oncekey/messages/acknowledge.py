"""Acknowledgement of messages for consumer loops without a framework.

    async for delivered in subscription.messages:           # nats-py; a queue of aio-pika alike
        async with acknowledged(delivered) as message:
            async with inbox.leased(message) as delivery: ...

A message that is in progress elsewhere is put back without an error.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from oncekey.compat import pause_async
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    KeyReusedError,
    LeaseLostError,
    OutcomeUnknownError,
    StoreError,
)
from oncekey.messages import jetstream, rabbitmq
from oncekey.messages.message import Message, from_redis_stream, message_of

_log = logging.getLogger("oncekey")

NOT_NOW: Final = (InProgressError, LeaseLostError, OutcomeUnknownError, StoreError)
"""Errors after which the message may be processed later. Nothing is wrong with the message."""
NEVER: Final = (InvalidKeyError, KeyReusedError)
"""Errors that the same message would raise again at every delivery."""


class _Answers(Struct, frozen=True):
    """The answers that a broker accepts for one message."""

    done: Callable[[], Awaitable[object]]
    later: Callable[[Exception], Awaitable[object]]
    """Deliver it later: it cannot be processed now. That should not count as a failure."""
    again: Callable[[], Awaitable[object]]
    """Deliver it again: it has failed."""
    never: Callable[[], Awaitable[object]]


@asynccontextmanager
async def acknowledged(delivered: Any, *, queue: Any = None) -> AsyncIterator[Message]:
    """Acknowledge one message of JetStream (nats-py) or RabbitMQ (aio-pika) when the block ends.

    After an error the message is delivered again and the error is raised. An error in `NOT_NOW`
    puts the message back and is not raised. A message without a usable key is rejected.

    With RabbitMQ, `queue` is the queue of aio-pika that the message came from, or its name. It is
    needed where the message was not published to the queue directly but through an exchange.
    """
    for kind in type(delivered).__mro__:
        if kind.__module__.startswith("nats."):
            limits = await jetstream.limits_of(delivered)
            jetstream.check_policy(limits.ack_policy)
            with jetstream.patience(delivered, limits, 0.0) as wait:
                found = message_of(delivered)
                place = delivered.metadata.stream if limits.max_deliver > 0 else ""
                limit = jetstream.limit_of(place, limits.max_deliver)
                message = replace(found, wait=wait, limit=limit)
                async with (
                    jetstream.beating(delivered.in_progress, limits.ack_wait),
                    _told(_of_jetstream(delivered, limits), message),
                ):
                    yield message
            return
        if kind.__module__.startswith("aio_pika."):
            if delivered.processed:
                msg = (
                    "acknowledged is for messages that nobody has acknowledged yet: consume the "
                    "queue with no_ack=False"
                )
                raise ConfigurationError(msg)
            name = getattr(queue, "name", queue) or rabbitmq.queue_of(delivered)
            arguments = getattr(queue, "arguments", None) or {}
            message = replace(
                message_of(delivered),
                max_attempts=rabbitmq.most_attempts(delivered, arguments),
                limit=rabbitmq.limit_of(name, arguments, delivered.channel.connection),
            )
            async with _told(_of_amqp(delivered, name, arguments), message):
                yield message
            return
    msg = (
        f"acknowledged is for messages of nats-py and aio-pika, not for a "
        f"{type(delivered).__name__}; tell its broker yourself, after the block of the inbox"
    )
    raise ConfigurationError(msg)


@asynccontextmanager
async def acknowledged_entry(
    client: Any,
    stream: str,
    group: str,
    entry: tuple[Any, Mapping[Any, Any]],
) -> AsyncIterator[Message]:
    """Do the same for an entry of a Redis stream, with a client of `redis.asyncio`.

    An entry that is not acknowledged stays pending, and XAUTOCLAIM delivers it again. One that
    cannot be processed now gets its count of deliveries back, as some consumers limit that.
    """
    number = entry[0]

    async def done() -> None:
        await client.xack(stream, group, number)

    async def later(why: Exception) -> None:
        try:
            for one in await client.xpending_range(stream, group, number, number, 1):
                before = max(0, one["times_delivered"] - 1)
                owner = one["consumer"]
                # JUSTID: the claim itself is no delivery.
                await client.xclaim(
                    stream, group, owner, 0, [number], retrycount=before, justid=True
                )
        except Exception as error:  # noqa: BLE001 - the entry is pending all the same
            _log.debug("the delivery of an entry was counted (%s): %r", why, error)

    line = _Answers(done, later, _leave_it, _leave_it)
    async with _told(line, from_redis_stream(stream, entry)) as message:
        yield message


@asynccontextmanager
async def _told(line: _Answers, message: Message) -> AsyncIterator[Message]:
    try:
        yield message
    except NOT_NOW as error:
        _log.info("a message was put back: %s", error)
        await line.later(error)
    except NEVER as error:
        _log.error("a message was rejected: %s", error)
        await line.never()
    except Exception:
        await line.again()
        raise
    else:
        await line.done()


def _of_jetstream(delivered: Any, limits: jetstream.ConsumerLimits) -> _Answers:
    async def later(error: Exception) -> None:
        await delivered.nak(delay=jetstream.delay_of(limits, error))

    return _Answers(delivered.ack, later, delivered.nak, delivered.term)


def _of_amqp(delivered: Any, name: str, arguments: Mapping[str, Any]) -> _Answers:
    async def later(error: Exception) -> None:
        if not rabbitmq.in_order(arguments) and await rabbitmq.put_back(delivered, name, error):
            await delivered.ack()
        else:
            await pause_async(rabbitmq.pause_before_requeue(error))
            await again()

    async def again() -> None:
        await delivered.nack(requeue=True)

    async def never() -> None:
        await delivered.reject(requeue=False)

    return _Answers(delivered.ack, later, again, never)


async def _leave_it() -> None:
    """Do nothing, so that the entry stays pending."""
