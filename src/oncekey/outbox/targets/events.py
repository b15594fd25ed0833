"""Our own event bus: a message is sent when the log of its job has the event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import MsgspecError, json

from oncekey.errors import StoreError
from oncekey.outbox.errors import UndeliverableError
from oncekey.outbox.table import OutboxMessage
from oncekey.outbox.targets.base import one_by_one

if TYPE_CHECKING:
    from oncekey.events import AsyncBus


class EventBus:
    """Publishes to the job that is named by the destination.

    The type of the message is the stage, and its body the data as JSON. Its attribute `seq` or
    `step` says which event it is, by which the log knows a second one.
    """

    def __init__(self, bus: AsyncBus) -> None:
        """Take the bus, which is to be used on the loop of the relay."""
        self._bus = bus

    async def publish(
        self, messages: Sequence[OutboxMessage], deadline: float, /
    ) -> list[BaseException | None]:
        """Publish the events. Return None for each that the log has, or an error."""
        return await one_by_one(self._publish, messages, deadline)

    async def aclose(self) -> None:
        """Do nothing: the bus belongs to whoever made it."""

    async def _publish(self, message: OutboxMessage) -> None:
        from oncekey.events.errors import InvalidEventError

        seq, step = message.attributes.get("seq"), message.attributes.get("step")
        try:
            data = json.decode(message.body) if message.body else None
            await self._bus.publish(message.to, message.type, data, seq=seq, step=step)
        except (InvalidEventError, MsgspecError) as error:
            raise UndeliverableError(f"no such event can be published: {error}") from error
        except StoreError as error:  # the log is out of reach, or full until routers have read it
            raise ConnectionError(f"the event log cannot be used: {error}") from error
