"""The dead letters of an inbox by the URL of its database, for `oncekey dead-letters`.

Nothing is created here: neither the table nor the file.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct, json

from oncekey.errors import ConfigurationError
from oncekey.messages.message import ENTRY_ID, Letter
from oncekey.messages.purge import existing_table
from oncekey.messages.rabbitmq import COUNT, TRIES
from oncekey.messages.statements import as_micros

_PATIENCE: Final = 10.0


class DeadMessage(Struct, frozen=True, kw_only=True):
    """A message that has failed for good, and its history."""

    consumer: str
    key: str
    message_id: str
    message_type: str
    attempts: int
    error: str
    """The last error, in words."""
    first_seen: int
    """Times are microseconds since 1970."""
    died: int
    expires: int
    """When it is forgotten, so that a delivery would be processed again."""
    token: int
    dead: bool
    """Whether it is not processed when it is delivered. It may have been freed since it died."""
    letter: Letter | None
    """The message itself, unless it was too large to keep or its body was not known."""


def dead_letters(
    url: str, *, consumer: str = "", key: str = "", limit: int = 100
) -> list[DeadMessage] | None:
    """Return the messages that have failed for good, the newest first. None without an inbox.

    An empty consumer or key means any.
    """
    with existing_table(url) as table:
        if table is None:
            return None
        return [
            DeadMessage(
                consumer=row[0],
                key=row[1],
                message_id=row[2],
                message_type=row[3],
                attempts=row[4],
                error=row[5] or "",
                first_seen=as_micros(row[6]),
                died=as_micros(row[7]),
                expires=as_micros(row[8]),
                token=row[9],
                dead=bool(row[11]),
                letter=None if row[10] is None else json.decode(row[10], type=Letter),
            )
            for row in table.dead(consumer, key, limit)
        ]


def free_dead_letter(url: str, letter: DeadMessage) -> bool:
    """Let the message be processed again when it is delivered, with all of its attempts.

    Return False if something has happened to it since it was read.
    """
    with existing_table(url) as table:
        return table is not None and table.free(letter.consumer, letter.key, letter.token)


async def publish(letter: Letter, broker: str, to: str) -> None:
    """Publish the message again, with its id, to a queue, subject or stream of the broker.

    `broker` is a URL: `amqp://` for a queue of RabbitMQ, `nats://` for a subject of JetStream, or
    `redis://` for a stream. Raise an error of its client if the broker does not confirm it.
    """
    kind = broker.partition("://")[0]
    publishers = {
        "amqp": _to_rabbitmq,
        "amqps": _to_rabbitmq,
        "nats": _to_jetstream,
        "tls": _to_jetstream,
        "redis": _to_redis,
        "rediss": _to_redis,
    }
    if kind not in publishers:
        msg = f"messages are sent to amqp://, nats:// or redis://, not to {kind}://"
        raise ConfigurationError(msg)
    try:
        async with asyncio.timeout(_PATIENCE):  # some clients would try to connect for ever
            await publishers[kind](letter, broker, to)
    except ModuleNotFoundError as error:
        msg = f"sending to {kind}:// needs the package {error.name}; install it"
        raise ConfigurationError(msg) from error


async def _to_rabbitmq(letter: Letter, broker: str, to: str) -> None:
    import aio_pika

    message = aio_pika.Message(
        letter.body,
        headers={
            name: value
            for name, value in letter.attributes.items()
            if name[:2] != "x-" and name not in (TRIES, COUNT)  # it begins anew
        },
        message_id=letter.id or None,
        type=letter.type or None,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )
    async with await aio_pika.connect(broker) as connection:
        channel = await connection.channel(on_return_raises=True)
        await channel.default_exchange.publish(message, routing_key=to)


async def _to_jetstream(letter: Letter, broker: str, to: str) -> None:
    import nats

    headers = {name: str(value) for name, value in letter.attributes.items()}
    client = await nats.connect(broker)
    try:
        answer = await client.jetstream().publish(
            to, letter.body, headers={**headers, "Nats-Msg-Id": letter.id}
        )
    finally:
        await client.close()
    if answer.duplicate:
        msg = (
            f"the stream still remembers {letter.id!r} and took it for a duplicate; send it again "
            f"when its duplicate_window is over"
        )
        raise ConfigurationError(msg)


async def _to_redis(letter: Letter, broker: str, to: str) -> None:
    from redis.asyncio import Redis

    if letter.entry is None:  # it came from another broker
        fields: dict[Any, Any] = {name: str(value) for name, value in letter.attributes.items()}
        fields["data"] = letter.body
    else:
        fields = dict(letter.entry)
    if letter.id:
        fields[ENTRY_ID.encode()] = letter.id
    async with Redis.from_url(broker) as client:
        await client.xadd(to, fields)
