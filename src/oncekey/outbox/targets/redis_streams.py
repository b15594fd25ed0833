"""Redis Streams: a message is sent when the primary has added it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oncekey.extras import needing
from oncekey.messages.message import OUTBOX_ID, REDIS_BODY
from oncekey.outbox.table import OutboxMessage

if TYPE_CHECKING:
    from redis.asyncio import Redis


class RedisStreams:
    """Adds an entry to the stream that is named by the destination.

    Its fields are the attributes, `type`, `data` with the body, and `oncekey-id`, by which
    `from_redis_stream` knows what an inbox has seen. Redis itself knows no ids, and confirms what a
    fail-over may lose.
    """

    def __init__(self, url: str, *, length: int | None = None, **options: Any) -> None:
        """Remember the URL and further options of `Redis.from_url`. The first message connects.

        `length` is what streams are trimmed to, about; unless you say so they grow.
        """
        with needing("redis", "Redis Streams"):
            from redis.asyncio import Redis
        self._length = length
        self._client: Redis = Redis.from_url(url, **options)

    async def publish(
        self,
        messages: Sequence[OutboxMessage],
        deadline: float,  # noqa: ARG002 - one pipeline is all, and it has just begun
        /,
    ) -> list[BaseException | None]:
        """Add the messages. Return None for each that Redis has, or an error."""
        from redis.exceptions import ConnectionError as NoConnectionError
        from redis.exceptions import OutOfMemoryError, ReadOnlyError
        from redis.exceptions import TimeoutError as TooLateError

        unable = (NoConnectionError, TooLateError, OutOfMemoryError, ReadOnlyError)
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for message in messages:
                    pipeline.xadd(message.to, _fields(message), maxlen=self._length)
                answers = await pipeline.execute(raise_on_error=False)
        except unable as error:
            answers = [error] * len(messages)
        return [
            ConnectionError(f"Redis cannot take it now: {answer}")
            if isinstance(answer, unable)
            else answer
            if isinstance(answer, BaseException)
            else None
            for answer in answers
        ]

    async def aclose(self) -> None:
        """Close the connections. The next message opens new ones."""
        await self._client.aclose()


def _fields(message: OutboxMessage) -> dict[Any, Any]:
    fields: dict[Any, Any] = {name: str(value) for name, value in message.attributes.items()}
    if message.type:
        fields.setdefault("type", message.type)
    if message.id:
        fields[OUTBOX_ID] = message.id
    if message.body or not fields:
        fields[REDIS_BODY] = message.body
    return fields
