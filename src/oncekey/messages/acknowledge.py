"""Acknowledgement of messages for consumer loops without a framework.

    async for delivered in subscription.messages:           # nats-py; a queue of aio-pika alike
        async with acknowledged(delivered) as message:
            async with inbox.leased(message) as delivery: ...

A message that is in progress elsewhere is put back without an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    KeyReusedError,
    LeaseLostError,
    OutcomeUnknownError,
    StoreError,
)
from oncekey.messages.message import Message, from_redis_stream, message_of

_log = logging.getLogger("oncekey")

NOT_NOW: Final = (InProgressError, LeaseLostError, OutcomeUnknownError, StoreError)
"""Errors after which the message may be processed later. Nothing is wrong with the message."""
NEVER: Final = (InvalidKeyError, KeyReusedError)
"""Errors that the same message would raise again at every delivery."""


class _Answers(Struct, frozen=True):
    """The answers that a broker accepts for one message."""

    done: Callable[[], Awaitable[object]]
    again: Callable[[float], Awaitable[object]]
    never: Callable[[], Awaitable[object]]


@asynccontextmanager
async def acknowledged(delivered: Any) -> AsyncIterator[Message]:
    """Acknowledge one message of JetStream (nats-py) or RabbitMQ (aio-pika) when the block ends.

    After an error the message is delivered again and the error is raised. An error in `NOT_NOW`
    puts the message back and is not raised. A message without a usable key is rejected.
    """
    line = _line_of(delivered)
    async with _told(line, message_of(delivered)) as message:
        yield message


@asynccontextmanager
async def acknowledged_entry(
    client: Any,
    stream: str,
    group: str,
    entry: tuple[Any, Mapping[Any, Any]],
) -> AsyncIterator[Message]:
    """Do the same for an entry of a Redis stream, with a client of `redis.asyncio`.

    An entry that is not acknowledged stays pending, and XAUTOCLAIM delivers it again.
    """

    async def done() -> None:
        await client.xack(stream, group, entry[0])

    line = _Answers(done, _leave_it, _leave_it)
    async with _told(line, from_redis_stream(stream, entry)) as message:
        yield message


@asynccontextmanager
async def _told(line: _Answers, message: Message) -> AsyncIterator[Message]:
    try:
        yield message
    except NOT_NOW as error:
        _log.info("a message was put back: %s", error)
        await line.again(getattr(error, "retry_after", 1.0))
    except NEVER as error:
        _log.error("a message was rejected: %s", error)
        await line.never()
    except Exception:
        await line.again(0.0)
        raise
    else:
        await line.done()


def _line_of(delivered: Any) -> _Answers:
    for kind in type(delivered).__mro__:
        if kind.__module__.startswith("nats."):
            return _of_jetstream(delivered)
        if kind.__module__.startswith("aio_pika."):
            return _of_amqp(delivered)
    msg = (
        f"acknowledged is for messages of nats-py and aio-pika, not for a "
        f"{type(delivered).__name__}; tell its broker yourself, after the block of the inbox"
    )
    raise ConfigurationError(msg)


def _of_jetstream(delivered: Any) -> _Answers:
    async def again(seconds: float) -> None:
        await delivered.nak(delay=seconds or None)

    return _Answers(delivered.ack, again, delivered.term)


def _of_amqp(delivered: Any) -> _Answers:
    async def again(seconds: float) -> None:
        await asyncio.sleep(seconds)  # RabbitMQ delivers it again at once
        await delivered.nack(requeue=True)

    async def never() -> None:
        await delivered.reject(requeue=False)

    return _Answers(delivered.ack, again, never)


async def _leave_it(seconds: float = 0.0) -> None:
    """Do nothing, so that the entry stays pending."""
