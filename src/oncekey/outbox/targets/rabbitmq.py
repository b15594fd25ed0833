"""RabbitMQ: a message is sent when the broker has confirmed it, and a queue has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oncekey.extras import needing
from oncekey.outbox.errors import MessageRefusedError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import one_by_one

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange


class RabbitMQ:
    """Sends to queues, or to an exchange with the destination as routing key.

    The broker confirms each message, and returns one that no queue takes. The id is the property
    `message_id`.
    """

    def __init__(self, url: str, *, exchange: str = "", **options: Any) -> None:
        """Remember the URL and further options of `aio_pika.connect`. The first message connects.

        Without `exchange` the destination is the name of a queue.
        """
        with needing("rabbitmq", "RabbitMQ"):
            import aio_pika  # noqa: F401 - fails here rather than in the relay
        self._url = url
        self._exchange = exchange
        self._options = options
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._connecting = asyncio.Lock()

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Send the messages. Return None for each that the broker has confirmed, or an error."""
        from aio_pika.exceptions import ChannelClosed, ChannelInvalidStateError

        try:
            exchange = await self._ready()
        except Exception as error:
            raise ConnectionError(f"RabbitMQ cannot be used: {error!r}") from error

        async def publish(message: OutboxMessage) -> None:
            try:
                await exchange.publish(_message(message), routing_key=message.to, mandatory=True)
            except (ChannelClosed, ChannelInvalidStateError) as error:
                raise ConnectionError(f"RabbitMQ has closed the channel: {error}") from error

        return [_meant(answer) for answer in await one_by_one(publish, messages, deadline)]

    async def aclose(self) -> None:
        """Close the connection. The next message opens a new one."""
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def _ready(self) -> AbstractExchange:
        import aio_pika

        async with self._connecting:
            channel = self._channel
            if channel is None or channel.is_closed:
                await self.aclose()
                connection = await aio_pika.connect(self._url, **self._options)
                self._connection = connection
                channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
                self._channel = channel
            if not self._exchange:
                return channel.default_exchange
            return await channel.get_exchange(self._exchange, ensure=False)


def _message(message: OutboxMessage) -> Any:
    import aio_pika

    return aio_pika.Message(
        message.body,
        headers=dict(message.attributes),
        message_id=message.id or None,
        type=message.type or None,
        content_type=_text(message, "content-type"),
        correlation_id=_text(message, "correlation_id"),
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


def _text(message: OutboxMessage, name: str) -> str | None:
    """Return the attribute that is a property of a message of AMQP, too."""
    return str(message.attributes[name]) if message.attributes.get(name) else None


def _meant(error: BaseException | None) -> BaseException | None:
    """Return the error as a relay understands it."""
    from aio_pika.exceptions import DeliveryError, PublishError

    if isinstance(error, PublishError):
        return MessageRefusedError("no queue takes it; declare one, or put another `to`")
    if isinstance(error, DeliveryError):
        return MessageRefusedError(f"RabbitMQ did not take it: {error}")
    return error
