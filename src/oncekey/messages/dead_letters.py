"""The dead letters of an inbox by the URL of its database, for `oncekey dead-letters`.

Nothing is created here: neither the table nor the file.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import replace

from oncekey.messages.message import FIRST_ID, OUTBOX_ID, Letter
from oncekey.messages.purge import existing_table
from oncekey.messages.rabbitmq import COUNT, TRIES
from oncekey.messages.statements import as_micros
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets import JetStream, target_of

_PATIENCE: Final = 10.0
_NATS: Final = ("nats://", "tls://")


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
    `redis://` for a stream. Raise MessageRefusedError, or an error of its client, if the broker
    does not confirm it.
    """
    if letter.entry is not None and broker.startswith("redis"):
        await _entry_again(letter, letter.entry, broker, to)
        return
    target = JetStream(broker, twice=False) if broker.startswith(_NATS) else target_of(broker)
    try:
        async with asyncio.timeout(_PATIENCE):  # some clients would try to connect for ever
            (error,) = await target.publish([_again(letter, broker, to)], monotonic() + _PATIENCE)
    finally:
        await target.aclose()
    if error is not None:
        raise error


def _again(letter: Letter, broker: str, to: str) -> OutboxMessage:
    """Return the letter as it was when it was published first."""
    message = OutboxMessage(
        id=letter.id,
        to=to,
        type=letter.type,
        attributes=letter.attributes,
        body=letter.body,
    )
    if broker.startswith(_NATS):  # its type is the subject
        return replace(message, type="")
    if not broker.startswith("redis"):
        counted = (TRIES, COUNT)
        fresh = {
            name: value
            for name, value in letter.attributes.items()
            if name[:2] != "x-" and name not in counted  # it begins anew
        }
        return replace(message, attributes=fresh)
    return message


async def _entry_again(letter: Letter, entry: list[tuple[bytes, bytes]], url: str, to: str) -> None:
    """Add the entry of a stream again as it was, with its first id beside its fields."""
    from redis.asyncio import Redis

    fields: dict[Any, Any] = dict(entry)
    if letter.id and OUTBOX_ID.encode() not in fields:
        fields[FIRST_ID.encode()] = letter.id
    async with Redis.from_url(url) as client:
        await client.xadd(to, fields)
